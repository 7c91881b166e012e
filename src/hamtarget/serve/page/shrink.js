// Large pictures are made smaller before they are sent, and very small ones are kept in links.

const MOST_BYTES = 1_000_000;
const MOST_SIDE = 1600;
const THUMB_SIDE = 72;
const MOST_THUMB_BYTES = 6000;

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

// A picture of a few kilobytes at most, as bytes, or null.
export async function thumbnail(file) {
  try {
    const small = await drawn(file, THUMB_SIDE, "image/webp", 0.6);
    return small.size > MOST_THUMB_BYTES ? null : new Uint8Array(await small.arrayBuffer());
  } catch {
    return null;
  }
}

// The address of a small picture, which may come from a link that anybody made: it is shown as an image and nothing else.
export function thumbnailAddress(content) {
  return URL.createObjectURL(new Blob([content], { type: "image/webp" }));
}
