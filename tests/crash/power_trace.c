/* Records every change that a process makes to files below a folder, in order: for LD_PRELOAD.
 *
 * POWER_ROOT is the folder, POWER_TRACE the file that the records go to. A record is five numbers (one byte for the
 * kind, then the inode, a position, and the lengths of two texts) and the two texts: a path and data, or two paths.
 * tests/crash/power_disk.py reads them. A call is recorded after it has succeeded, under one lock, so that the order of
 * the records is the order of the calls. What cannot be replayed (a writable mapping, a symbolic link, a stream of C)
 * is recorded as kind 'X'. With POWER_NAMED set, files without a name are refused, as some file systems do.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static char root[PATH_MAX];
static size_t root_length;
static int trace = -1;
static pid_t owner;

static void put(const void *bytes, size_t length) {
    for (const char *at = bytes; length;) {
        long count = syscall(SYS_write, trace, at, length);
        if (count <= 0) abort(); /* A trace with a hole would prove nothing. */
        at += count;
        length -= (size_t)count;
    }
}

static void record(char kind, uint64_t inode, int64_t position, const char *path, const void *data, size_t n_data) {
    uint64_t numbers[4] = {inode, (uint64_t)position, strlen(path), n_data};
    put(&kind, 1);
    put(numbers, sizeof numbers);
    put(path, strlen(path));
    put(data, n_data);
}

__attribute__((constructor)) static void begin(void) {
    const char *folder = getenv("POWER_ROOT"), *file = getenv("POWER_TRACE");
    if (!folder || !file || !realpath(folder, root)) return;
    root_length = strlen(root);
    trace = (int)syscall(SYS_openat, AT_FDCWD, file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    owner = getpid();
    struct stat found;
    if (!stat(root, &found)) record('d', found.st_ino, 0, root, "", 0);
}

static int below(const char *path) {
    return trace >= 0 && getpid() == owner && !strncmp(path, root, root_length) &&
           (path[root_length] == '/' || !path[root_length]);
}

/* The path of an open file or folder. */
static int path_of(int number, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", number);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return 1;
}

static int is_below(int number) {
    char path[PATH_MAX];
    return trace >= 0 && path_of(number, path) && below(path);
}

/* The absolute path of a name: its folder with every link resolved, the last part as it is. */
static int resolve(int at, const char *name, char *path) {
    char whole[2 * PATH_MAX + 1], folder[PATH_MAX];
    if (trace < 0) return 0;
    if (name[0] == '/') {
        snprintf(whole, sizeof whole, "%s", name);
    } else {
        if (at == AT_FDCWD ? !getcwd(folder, sizeof folder) : !path_of(at, folder)) return 0;
        snprintf(whole, sizeof whole, "%s/%s", folder, name);
    }
    size_t length = strlen(whole);
    while (length > 1 && whole[length - 1] == '/') whole[--length] = 0;
    char *last = strrchr(whole, '/');
    *last = 0;
    if (!realpath(last == whole ? "/" : whole, folder)) return 0;
    return snprintf(path, PATH_MAX, "%s/%s", folder, last + 1) < PATH_MAX && below(path);
}

static uint64_t inode_of(int number) {
    struct stat found;
    return fstat(number, &found) ? 0 : found.st_ino;
}

static uint64_t inode_at(const char *path, int flags) {
    struct stat found;
    return fstatat(AT_FDCWD, path, &found, flags) ? 0 : found.st_ino;
}

/* A note of the process about itself: "change 3 has returned". */
void power_mark(const char *text) {
    pthread_mutex_lock(&lock);
    if (trace >= 0) record('M', 0, 0, text, "", 0);
    pthread_mutex_unlock(&lock);
}

/* Every call below does the real one and records it, under the lock. */
#define RECORDED(type, real_call, good, what)    \
    pthread_mutex_lock(&lock);                   \
    type result = real_call;                     \
    int error = errno;                           \
    if (good) {                                  \
        what;                                    \
    }                                            \
    pthread_mutex_unlock(&lock);                 \
    errno = error;                               \
    return result

static int opened(int at, const char *name, int flags, mode_t mode) {
    char path[PATH_MAX] = "";
    int nameless = (flags & O_TMPFILE) == O_TMPFILE;
    int known = resolve(at, name, path);
    if (nameless && getenv("POWER_NAMED")) {
        errno = EOPNOTSUPP;
        return -1;
    }
    RECORDED(int, (int)syscall(SYS_openat, at, name, flags, mode), result >= 0 && known, {
        if (nameless)
            record('t', inode_of(result), 0, path, "", 0);
        else if (flags & O_CREAT)
            record('c', inode_of(result), 0, path, "", 0);
        if (flags & O_TRUNC && (flags & O_ACCMODE) != O_RDONLY) record('s', inode_of(result), 0, path, "", 0);
    });
}

#define MODE                                              \
    mode_t mode = 0;                                      \
    if (flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE) { \
        va_list rest;                                     \
        va_start(rest, flags);                            \
        mode = va_arg(rest, mode_t);                      \
        va_end(rest);                                     \
    }

int open(const char *name, int flags, ...) { MODE return opened(AT_FDCWD, name, flags, mode); }
int open64(const char *name, int flags, ...) { MODE return opened(AT_FDCWD, name, flags, mode); }
int openat(int at, const char *name, int flags, ...) { MODE return opened(at, name, flags, mode); }
int openat64(int at, const char *name, int flags, ...) { MODE return opened(at, name, flags, mode); }
int __open_2(const char *name, int flags) { return opened(AT_FDCWD, name, flags, 0); }
int __open64_2(const char *name, int flags) { return opened(AT_FDCWD, name, flags, 0); }
int creat(const char *name, mode_t mode) { return opened(AT_FDCWD, name, O_CREAT | O_WRONLY | O_TRUNC, mode); }
int creat64(const char *name, mode_t mode) { return creat(name, mode); }

static void wrote(int number, const void *data, size_t count, int64_t position) {
    record('w', inode_of(number), position, "", data, count);
}

/* Where a write without a position has begun, seen after it. */
static int64_t began(int number, ssize_t count) { return (int64_t)lseek(number, 0, SEEK_CUR) - count; }

ssize_t write(int number, const void *data, size_t length) {
    int known = is_below(number);
    RECORDED(ssize_t, syscall(SYS_write, number, data, length), result > 0 && known,
             wrote(number, data, (size_t)result, began(number, result)));
}

ssize_t pwrite64(int number, const void *data, size_t length, off64_t position) {
    int known = is_below(number);
    RECORDED(ssize_t, syscall(SYS_pwrite64, number, data, length, position), result > 0 && known,
             wrote(number, data, (size_t)result, position));
}
ssize_t pwrite(int number, const void *data, size_t length, off_t position) {
    return pwrite64(number, data, length, position);
}

/* What was written in several pieces, or within the kernel, is read back. */
static void wrote_unseen(int number, ssize_t count, int64_t position) {
    char link[64], *data = malloc((size_t)count);
    snprintf(link, sizeof link, "/proc/self/fd/%d", number);
    int again = (int)syscall(SYS_openat, AT_FDCWD, link, O_RDONLY | O_CLOEXEC, 0);
    if (again < 0 || pread(again, data, (size_t)count, position) != count) abort();
    wrote(number, data, (size_t)count, position);
    syscall(SYS_close, again);
    free(data);
}

ssize_t writev(int number, const struct iovec *pieces, int n_pieces) {
    int known = is_below(number);
    RECORDED(ssize_t, syscall(SYS_writev, number, pieces, n_pieces), result > 0 && known,
             wrote_unseen(number, result, began(number, result)));
}
ssize_t pwritev64(int number, const struct iovec *pieces, int n_pieces, off64_t position) {
    int known = is_below(number);
    RECORDED(ssize_t, syscall(SYS_pwritev, number, pieces, n_pieces, position, position >> 32), result > 0 && known,
             wrote_unseen(number, result, position));
}
ssize_t pwritev(int number, const struct iovec *pieces, int n_pieces, off_t position) {
    return pwritev64(number, pieces, n_pieces, position);
}
ssize_t sendfile64(int number, int from, off64_t *position, size_t length) {
    int known = is_below(number);
    RECORDED(ssize_t, syscall(SYS_sendfile, number, from, position, length), result > 0 && known,
             wrote_unseen(number, result, began(number, result)));
}
ssize_t sendfile(int number, int from, off_t *position, size_t length) {
    return sendfile64(number, from, position, length);
}
ssize_t copy_file_range(int from, off64_t *from_position, int number, off64_t *position, size_t length, unsigned flags) {
    int known = is_below(number);
    RECORDED(ssize_t, syscall(SYS_copy_file_range, from, from_position, number, position, length, flags),
             result > 0 && known, wrote_unseen(number, result, position ? *position - result : began(number, result)));
}

int ftruncate64(int number, off64_t size) {
    int known = is_below(number);
    RECORDED(int, (int)syscall(SYS_ftruncate, number, size), !result && known,
             record('s', inode_of(number), size, "", "", 0));
}
int ftruncate(int number, off_t size) { return ftruncate64(number, size); }
int truncate64(const char *name, off64_t size) {
    char path[PATH_MAX];
    int known = resolve(AT_FDCWD, name, path);
    RECORDED(int, (int)syscall(SYS_truncate, name, size), !result && known,
             record('s', inode_at(path, 0), size, path, "", 0));
}
int truncate(const char *name, off_t size) { return truncate64(name, size); }

/* Room that was reserved may make a file longer. */
static void grown(int number) {
    struct stat found;
    if (!fstat(number, &found)) record('s', found.st_ino, found.st_size, "", "", 0);
}
int fallocate64(int number, int mode, off64_t position, off64_t length) {
    int known = is_below(number);
    RECORDED(int, (int)syscall(SYS_fallocate, number, mode, position, length), !result && known,
             if (mode & ~FALLOC_FL_KEEP_SIZE) record('X', 0, 0, "fallocate that changes content", "", 0);
             else grown(number));
}
int fallocate(int number, int mode, off_t position, off_t length) { return fallocate64(number, mode, position, length); }
int posix_fallocate64(int number, off64_t position, off64_t length) {
    return fallocate64(number, 0, position, length) ? errno : 0;
}
int posix_fallocate(int number, off_t position, off_t length) { return posix_fallocate64(number, position, length); }

int fsync(int number) {
    int known = is_below(number);
    RECORDED(int, (int)syscall(SYS_fsync, number), !result && known, record('f', inode_of(number), 0, "", "", 0));
}
int fdatasync(int number) {
    int known = is_below(number);
    RECORDED(int, (int)syscall(SYS_fdatasync, number), !result && known, record('f', inode_of(number), 0, "", "", 0));
}
/* Neither promises that anything is on disk when it returns, by the rules that are simulated. */
int sync_file_range(int number, off64_t position, off64_t length, unsigned flags) {
    return (int)syscall(SYS_sync_file_range, number, position, length, flags);
}

static int renamed(int from_at, const char *from, int to_at, const char *to, unsigned flags) {
    char old[PATH_MAX], fresh[PATH_MAX];
    int known = resolve(from_at, from, old), into = resolve(to_at, to, fresh);
    RECORDED(int, (int)syscall(SYS_renameat2, from_at, from, to_at, to, flags), !result && (known || into), {
        if (known && into && !(flags & RENAME_EXCHANGE))
            record('r', 0, 0, old, fresh, strlen(fresh));
        else
            record('X', 0, 0, "a rename across the root, or an exchange", "", 0);
    });
}
int rename(const char *from, const char *to) { return renamed(AT_FDCWD, from, AT_FDCWD, to, 0); }
int renameat(int from_at, const char *from, int to_at, const char *to) { return renamed(from_at, from, to_at, to, 0); }
int renameat2(int from_at, const char *from, int to_at, const char *to, unsigned flags) {
    return renamed(from_at, from, to_at, to, flags);
}

int unlinkat(int at, const char *name, int flags) {
    char path[PATH_MAX];
    int known = resolve(at, name, path);
    RECORDED(int, (int)syscall(SYS_unlinkat, at, name, flags), !result && known, record('u', 0, 0, path, "", 0));
}
int unlink(const char *name) { return unlinkat(AT_FDCWD, name, 0); }
int rmdir(const char *name) { return unlinkat(AT_FDCWD, name, AT_REMOVEDIR); }
int remove(const char *name) { return unlink(name) && errno == EISDIR ? rmdir(name) : 0; }

int mkdirat(int at, const char *name, mode_t mode) {
    char path[PATH_MAX];
    int known = resolve(at, name, path);
    RECORDED(int, (int)syscall(SYS_mkdirat, at, name, mode), !result && known,
             record('d', inode_at(path, 0), 0, path, "", 0));
}
int mkdir(const char *name, mode_t mode) { return mkdirat(AT_FDCWD, name, mode); }

int linkat(int from_at, const char *from, int to_at, const char *to, int flags) {
    char path[PATH_MAX];
    int known = resolve(to_at, to, path);
    RECORDED(int, (int)syscall(SYS_linkat, from_at, from, to_at, to, flags), !result && known,
             record('l', inode_at(path, 0), 0, path, "", 0));
}
int link(const char *from, const char *to) { return linkat(AT_FDCWD, from, AT_FDCWD, to, 0); }

int symlinkat(const char *to, int at, const char *name) {
    char path[PATH_MAX];
    int known = resolve(at, name, path);
    RECORDED(int, (int)syscall(SYS_symlinkat, to, at, name), !result && known,
             record('X', 0, 0, "a symbolic link", "", 0));
}
int symlink(const char *to, const char *name) { return symlinkat(to, AT_FDCWD, name); }

/* SQLite maps its -shm file, which it makes anew after a crash; whatever else is mapped to be written is not seen. */
void *mmap64(void *address, size_t length, int protection, int flags, int number, off64_t position) {
    char path[PATH_MAX] = "";
    if (number >= 0 && flags & MAP_SHARED && protection & PROT_WRITE && trace >= 0 && path_of(number, path) &&
        below(path)) {
        size_t n = strlen(path);
        pthread_mutex_lock(&lock);
        if (n < 4 || strcmp(path + n - 4, "-shm")) record('X', 0, 0, "a file mapped for writing", path, n);
        pthread_mutex_unlock(&lock);
    }
    return (void *)syscall(SYS_mmap, address, length, protection, flags, number, position);
}
void *mmap(void *address, size_t length, int protection, int flags, int number, off_t position) {
    return mmap64(address, length, protection, flags, number, position);
}

/* The C library writes streams by calls of its own, which are not seen. */
FILE *fopen64(const char *name, const char *mode) {
    char path[PATH_MAX];
    if (strpbrk(mode, "wa+") && resolve(AT_FDCWD, name, path)) {
        pthread_mutex_lock(&lock);
        record('X', 0, 0, "a stream of C", path, strlen(path));
        pthread_mutex_unlock(&lock);
    }
    return NEXT(fopen64)(name, mode);
}
FILE *fopen(const char *name, const char *mode) { return fopen64(name, mode); }
