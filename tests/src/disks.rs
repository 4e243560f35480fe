//! A small file system for a test: ext4 in a file, mounted through a loop device.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};
use tempfile::TempDir;

use crate::skip;

/// A mounted ext4. It is unmounted when the value is dropped.
///
/// The kernel makes it read-only when it finds an error (`errors=remount-ro`), as distributions mount their disks.
#[derive(Debug)]
pub struct Disk {
    image: PathBuf,
    mounted: PathBuf,
    _folder: TempDir,
}

impl Disk {
    /// Makes and mounts one. `None`, with a note, where this user may not.
    ///
    /// # Errors
    ///
    /// If the image cannot be written.
    pub fn mount(test: &str, mib: u64) -> anyhow::Result<Option<Self>> {
        let folder = TempDir::with_prefix("oxtsdb-disk-")?;
        let disk = Self {
            image: folder.path().join("image"),
            mounted: folder.path().join("mounted"),
            _folder: folder,
        };
        fs::create_dir(&disk.mounted)?;
        fs::File::create(&disk.image)?.set_len(mib << 20)?;
        // Root has no blocks of its own, so that the disk is full for the server as for others.
        let made = run("mkfs.ext4", &["-q", "-F", "-m", "0"], &[disk.image.as_path()]);
        if let Err(error) = made.and_then(|()| disk.mount_image()) {
            skip(&format!("{test} mounts a loop device, which root may: {error:#}"))?;
            return Ok(None);
        }
        Ok(Some(disk))
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.mounted
    }

    /// Fills it to the last block; the file is returned, to be removed again.
    ///
    /// # Errors
    ///
    /// If it cannot be filled.
    pub fn fill(&self) -> anyhow::Result<PathBuf> {
        let path = self.mounted.join("filler");
        let mut file = fs::File::create(&path)?;
        let block = vec![0x5a; 1 << 16];
        let mut size = block.len();
        // Smaller and smaller writes, as the last ones no longer fit.
        while size > 0 {
            if std::io::Write::write_all(&mut file, &block[..size]).is_err() {
                size /= 2;
            }
        }
        file.sync_all().context("fill the disk")?;
        Ok(path)
    }

    /// Makes the kernel find an error, upon which it makes the file system read-only.
    ///
    /// # Errors
    ///
    /// If the kernel does not.
    pub fn fail(&self) -> anyhow::Result<()> {
        let mounts = fs::read_to_string("/proc/self/mounts")?;
        let mounted = self.mounted.display().to_string();
        let device = mounts
            .lines()
            .find_map(|line| {
                let mut fields = line.split(' ');
                let device = fields.next()?;
                (fields.next()? == mounted).then_some(device)
            })
            .with_context(|| format!("{mounted} is not mounted"))?;
        let device = Path::new(device).file_name().context("a device")?;
        let trigger = Path::new("/sys/fs/ext4").join(device).join("trigger_fs_error");
        fs::write(trigger, "1")?;
        ensure!(
            fs::write(self.mounted.join("probe"), "").is_err(),
            "the file system is still writable"
        );
        Ok(())
    }

    /// Unmounts, repairs and mounts it again, as an operator does after an error. No program may use it.
    ///
    /// # Errors
    ///
    /// If one of these fails.
    pub fn repair(&self) -> anyhow::Result<()> {
        run("umount", &[], &[self.mounted.as_path()])?;
        // 1: errors were corrected.
        let checked = Command::new("e2fsck")
            .args(["-f", "-y"])
            .arg(&self.image)
            .output()?;
        ensure!(matches!(checked.status.code(), Some(0 | 1)), "{checked:?}");
        self.mount_image()
    }

    fn mount_image(&self) -> anyhow::Result<()> {
        run(
            "mount",
            &["-o", "loop,errors=remount-ro"],
            &[self.image.as_path(), self.mounted.as_path()],
        )
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Lazily, as a server that is killed later may still use it. An error means that it is not mounted.
        let _ = run("umount", &["-l"], &[self.mounted.as_path()]);
    }
}

fn run(program: &str, arguments: &[&str], paths: &[&Path]) -> anyhow::Result<()> {
    let output = Command::new(program)
        .args(arguments)
        .args(paths)
        .output()
        .with_context(|| program.to_owned())?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program}: {}", errors.trim());
    Ok(())
}
