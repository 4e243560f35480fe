//! Files and values of the embedded store.

use std::fs;
use std::path::Path;

/// Copies a folder with all that is in it.
pub fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Flips a bit of the byte at `offset`.
pub fn flip(file: &Path, offset: usize) {
    let mut bytes = fs::read(file).unwrap();
    bytes[offset] ^= 1 << (offset % 8);
    fs::write(file, bytes).unwrap();
}

/// Bytes without repetitions, which do not compress: the same ones for a number.
pub fn noise(number: u32) -> impl Iterator<Item = u8> {
    let mut state = u64::from(number) + 1;
    std::iter::repeat_with(move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        state.to_be_bytes()[0]
    })
}
