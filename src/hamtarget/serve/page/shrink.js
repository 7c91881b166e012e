// Large pictures are made smaller before they are sent, and very small ones are kept in links.

const MOST_BYTES = 1_000_000;
const MOST_SIDE = 1600;
const THUMB_SIDE = 72;
const MOST_THUMB_CHARACTERS = 8000;

async function drawn(file, side, kind, quality) {
  const whole = await createImageBitmap(file);
  const scale = Math.min(1, side / Math.max(whole.width, whole.height));
  const [width, height] = [whole.width, whole.height].map((each) => Math.max(1, Math.round(each * scale)));
  const canvas = new OffscreenCanvas(width, height);
  const context = canvas.getContext("2d");
  context.imageSmoothingQuality = "high";
  // Of a transparent picture, white is seen, as on the page.
  context.fillStyle = "#fff";
  context.fillRect(0, 0, width, height);
  context.drawImage(whole, 0, 0, width, height);
  whole.close();
  return canvas.convertToBlob({ type: kind, quality });
}

// The file as it is to be sent: itself, unless it is large. What is no picture is left to the service to refuse.
export async function shrink(file) {
  if (file.size <= MOST_BYTES) return file;
  try {
    const small = await drawn(file, MOST_SIDE, "image/jpeg", 0.92);
    return small.size < file.size ? small : file;
  } catch {
    return file;
  }
}

// A picture of a few kilobytes at most, or null.
export async function thumbnail(file) {
  try {
    const small = await drawn(file, THUMB_SIDE, "image/webp", 0.6);
    const content = new Uint8Array(await small.arrayBuffer());
    return content.length * 4 > MOST_THUMB_CHARACTERS * 3 ? null : Object.assign(small, { content });
  } catch {
    return null;
  }
}

export function toBase64(thumb) {
  return thumb.content.toBase64?.({ alphabet: "base64url" }) ?? btoa(String.fromCharCode(...thumb.content))
    .replaceAll("+", "-").replaceAll("/", "_");
}

// The picture in a link; it may have been changed by anybody, and is shown as an image and nothing else.
export function fromBase64(text) {
  if (!text || text.length > MOST_THUMB_CHARACTERS) return null;
  const content = Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (each) => each.charCodeAt(0));
  return Object.assign(new Blob([content], { type: "image/webp" }), { content });
}
