//! PNG files: a palette for up to 256 colours, which halves most files, else 8 bits for each of red, green and blue.

use std::collections::HashMap;
use std::io::Write;

use png::{BitDepth, ColorType, Encoder, EncodingError, Filter};
use tiny_skia::{Pixmap, PremultipliedColorU8};

/// Returns a PNG file of an opaque picture.
pub(crate) fn encode(picture: &Pixmap) -> Vec<u8> {
    let mut file = Vec::new();
    write(picture, &mut file).expect("a `Vec` accepts all bytes, and the data has the picture's size");
    file
}

fn write(picture: &Pixmap, file: &mut Vec<u8>) -> Result<(), EncodingError> {
    let mut encoder = Encoder::new(file, picture.width(), picture.height());
    encoder.set_depth(BitDepth::Eight);
    // Filters take time, and make files of lines on one colour larger.
    encoder.set_filter(Filter::NoFilter);
    let width = picture.width() as usize;
    if let Some(Indexed { palette, indexes }) = Indexed::new(picture.pixels()) {
        encoder.set_color(ColorType::Indexed);
        encoder.set_palette(palette);
        let mut writer = encoder.write_header()?;
        let mut data = writer.stream_writer()?;
        data.write_all(&indexes)?;
        return data.finish();
    }
    encoder.set_color(ColorType::Rgb);
    let mut writer = encoder.write_header()?;
    let mut data = writer.stream_writer()?;
    let mut bytes = Vec::with_capacity(width * 3);
    for row in picture.pixels().chunks_exact(width) {
        bytes.clear();
        bytes.extend(row.iter().flat_map(rgb));
        data.write_all(&bytes)?;
    }
    data.finish()
}

fn rgb(pixel: &PremultipliedColorU8) -> [u8; 3] {
    [pixel.red(), pixel.green(), pixel.blue()]
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
    fn new(pixels: &[PremultipliedColorU8]) -> Option<Self> {
        let mut numbers: HashMap<[u8; 3], u8> = HashMap::new();
        let mut palette = Vec::new();
        let mut indexes = Vec::with_capacity(pixels.len());
        // Most pixels have the colour of the one before.
        for run in pixels.chunk_by(|a, b| a == b) {
            let color = rgb(&run[0]);
            let index = match numbers.get(&color) {
                Some(index) => *index,
                None => {
                    let index = u8::try_from(numbers.len()).ok()?;
                    numbers.insert(color, index);
                    palette.extend(color);
                    index
                }
            };
            indexes.resize(indexes.len() + run.len(), index);
        }
        Some(Self { palette, indexes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_decodes(colors: u32, color_type: ColorType) {
        let mut picture = Pixmap::new(67, 49).unwrap();
        for (pixel, at) in picture.pixels_mut().iter_mut().zip(0_u32..) {
            let [_, _, high, low] = (at * 7 % colors).to_be_bytes();
            *pixel = PremultipliedColorU8::from_rgba(low, high, 9, 255).unwrap();
        }
        let mut decoder = png::Decoder::new(std::io::Cursor::new(encode(&picture)));
        assert_eq!(decoder.read_header_info().unwrap().color_type, color_type);
        decoder.set_transformations(png::Transformations::EXPAND);
        let mut reader = decoder.read_info().unwrap();
        let mut decoded = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut decoded).unwrap();
        assert_eq!((info.width, info.height), (67, 49));
        let pixels: Vec<u8> = picture.pixels().iter().flat_map(rgb).collect();
        assert_eq!(decoded, pixels);
    }

    #[test]
    fn pictures_of_few_colours_have_a_palette() {
        assert_decodes(256, ColorType::Indexed);
        assert_decodes(257, ColorType::Rgb);
    }
}
