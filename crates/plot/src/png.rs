//! An encoder of PNG: a palette for up to 256 colours, else 8 bits for each of red, green and blue.
//!
//! Source: "Portable Network Graphics (PNG) Specification (Third Edition)", sections 5, 9, 11 and 12.

use std::collections::HashMap;
use std::io::Write;

use flate2::Compression;
use flate2::write::ZlibEncoder;

use crate::size::Size;

const SIGNATURE: [u8; 8] = [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n'];
const BYTES_PER_PIXEL: usize = 3;
const TRUECOLOUR: u8 = 2;
const INDEXED: u8 = 3;

/// Returns a PNG file of the pixels: red, green and blue, rows from top to bottom.
pub(crate) fn encode(size: Size, pixels: &[u8]) -> Vec<u8> {
    let indexed = Indexed::new(pixels);
    let mut header = Vec::with_capacity(13);
    header.extend(size.width().to_be_bytes());
    header.extend(size.height().to_be_bytes());
    // 8 bits; the only compression and filter methods; not interlaced.
    header.extend([8, if indexed.is_some() { INDEXED } else { TRUECOLOUR }, 0, 0, 0]);

    let mut file = Vec::new();
    file.extend(SIGNATURE);
    push_chunk(&mut file, *b"IHDR", &header);
    let width = size.width() as usize;
    let data = match indexed {
        Some(Indexed { palette, indexes }) => {
            push_chunk(&mut file, *b"PLTE", &palette);
            // Neighbours in a palette are no similar colours: differences have no use.
            compress(indexes.chunks_exact(width), |row, _, filtered| {
                refill(filtered, 0, row.iter().copied())
            })
        }
        None => compress(pixels.chunks_exact(width * BYTES_PER_PIXEL), best_filter),
    };
    push_chunk(&mut file, *b"IDAT", &data);
    push_chunk(&mut file, *b"IEND", &[]);
    file
}

fn push_chunk(file: &mut Vec<u8>, name: [u8; 4], data: &[u8]) {
    file.extend(u32::try_from(data.len()).unwrap_or(u32::MAX).to_be_bytes());
    let mut checksum = crc32fast::Hasher::new();
    checksum.update(&name);
    checksum.update(data);
    file.extend(name);
    file.extend(data);
    file.extend(checksum.finalize().to_be_bytes());
}

/// Compresses rows. `filter` fills its last argument from a row and the row before it.
fn compress<'a>(
    rows: impl Iterator<Item = &'a [u8]>,
    mut filter: impl FnMut(&[u8], &[u8], &mut Vec<u8>),
) -> Vec<u8> {
    let mut zlib = ZlibEncoder::new(Vec::new(), Compression::new(6));
    let mut previous: &[u8] = &[];
    let mut filtered = Vec::new();
    for row in rows {
        filter(row, previous, &mut filtered);
        // A `Vec` accepts all bytes.
        let _ = zlib.write_all(&filtered);
        previous = row;
    }
    zlib.finish().unwrap_or_default()
}

/// A picture of at most 256 colours.
struct Indexed {
    /// Red, green and blue of each colour.
    palette: Vec<u8>,
    /// The colour of each pixel.
    indexes: Vec<u8>,
}

impl Indexed {
    /// Returns `None` if there are more colours.
    fn new(pixels: &[u8]) -> Option<Self> {
        let mut numbers: HashMap<[u8; BYTES_PER_PIXEL], u8> = HashMap::new();
        let mut palette = Vec::new();
        let mut indexes = Vec::with_capacity(pixels.len() / BYTES_PER_PIXEL);
        let mut last = None;
        for pixel in pixels.as_chunks::<BYTES_PER_PIXEL>().0 {
            let index = match last {
                Some((color, index)) if color == *pixel => index,
                _ => match numbers.get(pixel) {
                    Some(index) => *index,
                    None => {
                        let index = u8::try_from(numbers.len()).ok()?;
                        numbers.insert(*pixel, index);
                        palette.extend(pixel);
                        index
                    }
                },
            };
            last = Some((*pixel, index));
            indexes.push(index);
        }
        Some(Self { palette, indexes })
    }
}

/// Chooses among no difference, that to the row above and that to the pixel on the left by the smallest sum of bytes, the
/// specification's heuristic.
fn best_filter(row: &[u8], previous: &[u8], filtered: &mut Vec<u8>) {
    let above = previous.iter().chain(std::iter::repeat(&0));
    let left = [0; BYTES_PER_PIXEL];
    let mut candidates = [Vec::new(), Vec::new(), Vec::new()];
    refill(
        &mut candidates[0],
        2,
        row.iter()
            .zip(above)
            .map(|(byte, above)| byte.wrapping_sub(*above)),
    );
    refill(
        &mut candidates[1],
        1,
        row.iter()
            .zip(left.iter().chain(row))
            .map(|(byte, left)| byte.wrapping_sub(*left)),
    );
    refill(&mut candidates[2], 0, row.iter().copied());
    if let Some(best) = candidates.into_iter().min_by_key(|bytes| cost(bytes)) {
        *filtered = best;
    }
}

/// Replaces the bytes with the number of a filter and a filtered row.
fn refill(bytes: &mut Vec<u8>, filter: u8, row: impl Iterator<Item = u8>) {
    bytes.clear();
    bytes.push(filter);
    bytes.extend(row);
}

/// The sum of the bytes as signed numbers, without the filter's number.
fn cost(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .skip(1)
        .map(|byte| u64::from(byte.cast_signed().unsigned_abs()))
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_decodes(colors: u32, color_type: ::png::ColorType) {
        let size = Size::new(67, 49).unwrap();
        let color = |at: u32| {
            let [_, _, high, low] = (at * 7 % colors).to_be_bytes();
            [low, high, 9]
        };
        let pixels: Vec<u8> = (0..67 * 49).flat_map(color).collect();
        let file = encode(size, &pixels);
        let mut decoder = ::png::Decoder::new(std::io::Cursor::new(file));
        assert_eq!(decoder.read_header_info().unwrap().color_type, color_type);
        decoder.set_transformations(::png::Transformations::EXPAND);
        let mut reader = decoder.read_info().unwrap();
        let mut decoded = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut decoded).unwrap();
        assert_eq!((info.width, info.height), (67, 49));
        assert_eq!(decoded, pixels);
    }

    #[test]
    fn another_decoder_reads_pictures_with_and_without_palette() {
        assert_decodes(256, ::png::ColorType::Indexed);
        assert_decodes(257, ::png::ColorType::Rgb);
    }
}
