//! `krb5.conf`: the KDCs of a realm. Other settings are not used.
//!
//! Source: MIT Kerberos 1.20, `krb5.conf(5)`.

use std::path::{Path, PathBuf};

/// The file, unless `KRB5_CONFIG` names another.
const FILE: &str = "/etc/krb5.conf";

/// Files that include each other are read up to this depth.
const DEPTH: usize = 4;

/// The KDCs of a realm, as `host[:port]`, at least one.
///
/// # Errors
///
/// The file cannot be read, or has none.
pub(super) fn kdcs(realm: &str) -> Result<Vec<String>, String> {
    // As MIT's library, which takes a list; the first one counts here.
    let files = std::env::var_os("KRB5_CONFIG").unwrap_or_else(|| FILE.into());
    let file: PathBuf = std::env::split_paths(&files).next().unwrap_or_default();
    let mut lines = Vec::new();
    read(&file, DEPTH, &mut lines)
        .map_err(|error| format!("{}: {error}; or set --hbase-kerberos-kdc", file.display()))?;
    let kdcs = kdcs_of(&lines, realm);
    if kdcs.is_empty() {
        return Err(format!(
            "{} has no `kdc = HOST` for the realm `{realm}`; set --hbase-kerberos-kdc",
            file.display()
        ));
    }
    Ok(kdcs)
}

/// Reads the lines of a file and of the files that it includes.
fn read(path: &Path, depth: usize, lines: &mut Vec<String>) -> std::io::Result<()> {
    for line in std::fs::read_to_string(path)?.lines() {
        match line.trim().split_once(char::is_whitespace) {
            Some(("include", file)) if depth > 0 => read(Path::new(file.trim()), depth - 1, lines)?,
            Some(("includedir", folder)) if depth > 0 => {
                let entries = std::fs::read_dir(folder.trim())?;
                let mut files = entries
                    .map(|entry| entry.map(|entry| entry.path()))
                    .collect::<std::io::Result<Vec<_>>>()?;
                files.sort();
                for file in files.iter().filter(|file| is_included(file)) {
                    read(file, depth - 1, lines)?;
                }
            }
            _ => lines.push(line.to_owned()),
        }
    }
    Ok(())
}

/// Whether MIT reads a file of a folder: its name ends with `.conf`, or has letters, digits, `-` and `_` only.
fn is_included(file: &Path) -> bool {
    let name = file.file_name().and_then(|name| name.to_str()).unwrap_or(".");
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    name.ends_with(".conf") && !name.starts_with('.') || name.bytes().all(is_plain)
}

fn kdcs_of(lines: &[String], realm: &str) -> Vec<String> {
    let mut kdcs = Vec::new();
    let (mut is_realms, mut is_ours) = (false, false);
    for line in lines {
        let line = line.trim();
        if line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(section) = line.strip_prefix('[') {
            is_realms = section.starts_with("realms]");
            is_ours = false;
            continue;
        }
        if !is_realms {
            continue;
        }
        // A realm may be written in one line.
        let (key, mut value) = line.split_once('=').unwrap_or((line, ""));
        let mut key = key.trim();
        if let Some(inner) = value.trim().strip_prefix('{') {
            is_ours = key == realm;
            (key, value) = inner.split_once('=').unwrap_or((inner, ""));
            key = key.trim();
        }
        let value = value.trim().trim_end_matches('}').trim();
        if is_ours && key == "kdc" && !value.is_empty() {
            kdcs.extend(value.split_whitespace().filter_map(address));
        }
        if line.ends_with('}') {
            is_ours = false;
        }
    }
    kdcs
}

/// The address without its protocol; `None` for UDP alone and for proxies with HTTPS.
fn address(kdc: &str) -> Option<String> {
    let kdc = kdc.strip_prefix("tcp/").unwrap_or(kdc);
    (!kdc.contains('/')).then(|| kdc.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONF: &str = "
includedir /nowhere
[libdefaults]
  default_realm = RIG.TEST
  kdc = wrong
[realms]
  OTHER.TEST = {
    kdc = other
  }
  RIG.TEST = {
    # kdc = commented
    kdc = kdc1.rig.test
    kdc = tcp/kdc2.rig.test:1088
    kdc = https://proxy/KdcProxy
    admin_server = kdc1.rig.test
  }
  ONE.TEST = { kdc = one }
[domain_realm]
  .rig.test = RIG.TEST
";

    #[test]
    fn kdcs_of_a_realm_are_found() {
        let lines: Vec<_> = CONF.lines().map(str::to_owned).collect();
        assert_eq!(
            kdcs_of(&lines, "RIG.TEST"),
            ["kdc1.rig.test", "kdc2.rig.test:1088"]
        );
        assert_eq!(kdcs_of(&lines, "ONE.TEST"), ["one"]);
        assert_eq!(kdcs_of(&lines, "OTHER.TEST"), ["other"]);
        assert!(kdcs_of(&lines, "rig.test").is_empty());
    }

    #[test]
    fn files_may_include_files() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("d");
        std::fs::create_dir(&inner).unwrap();
        std::fs::write(inner.join("r.conf"), "[realms]\nR = {\n kdc = k\n}\n").unwrap();
        std::fs::write(inner.join("r.conf.rpmsave"), "[realms]\nR = {\n kdc = old\n}\n").unwrap();
        let file = folder.path().join("krb5.conf");
        let text = format!("includedir {}\n[libdefaults]\n", inner.display());
        std::fs::write(&file, text).unwrap();
        let mut lines = Vec::new();
        read(&file, DEPTH, &mut lines).unwrap();
        assert_eq!(kdcs_of(&lines, "R"), ["k"]);
        std::fs::write(&file, format!("include {}\n", file.display())).unwrap();
        read(&file, DEPTH, &mut Vec::new()).unwrap();
    }
}
