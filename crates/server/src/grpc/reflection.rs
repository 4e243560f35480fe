//! Reflection of the services that a server has, and of no others; descriptors of all.

use std::collections::{HashMap, HashSet};

use anyhow::Context as _;
use prost::Message as _;
use prost_types::{FileDescriptorProto, FileDescriptorSet};
use tonic::service::RoutesBuilder;

/// Adds reflection of these services, of health, and of error details.
pub(super) fn add(routes: &mut RoutesBuilder, services: &[&str]) -> anyhow::Result<()> {
    let contract = files_of(oxtsdb_proto::FILE_DESCRIPTOR_SET, services)?;
    let builder = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(&contract)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            // For tools that decode error details.
            .register_encoded_file_descriptor_set(tonic_types::pb::FILE_DESCRIPTOR_SET)
    };
    routes.add_service(builder().build_v1().context("reflection v1")?);
    // Older tools, such as grpcio's, know only this version.
    routes.add_service(builder().build_v1alpha().context("reflection v1alpha")?);
    Ok(())
}

/// A descriptor set with encoded files: prost's types drop custom options.
#[derive(Clone, PartialEq, prost::Message)]
struct RawFiles {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    file: Vec<bytes::Bytes>,
}

/// The descriptor set of the contract, of health and of error details, encoded; for proxies that transcode JSON.
///
/// # Errors
///
/// None with the sets of this build.
pub fn descriptor_set() -> anyhow::Result<Vec<u8>> {
    let sets = [
        oxtsdb_proto::FILE_DESCRIPTOR_SET,
        tonic_health::pb::FILE_DESCRIPTOR_SET,
        tonic_types::pb::FILE_DESCRIPTOR_SET,
    ];
    let mut added = HashSet::new();
    let mut all = RawFiles::default();
    for set in sets {
        let parsed = FileDescriptorSet::decode(set)?;
        // Sets share imports, and readers reject a file that comes twice.
        let files = parsed.file.iter().zip(RawFiles::decode(set)?.file);
        let new = files.filter(|(file, _)| added.insert(file.name().to_owned()));
        all.file.extend(new.map(|(_, raw)| raw));
    }
    Ok(all.encode_to_vec())
}

/// The files of a descriptor set that declare these services, with their imports.
fn files_of(set: &[u8], services: &[&str]) -> anyhow::Result<Vec<u8>> {
    let parsed = FileDescriptorSet::decode(set).context("descriptors of the contract")?;
    let raw = RawFiles::decode(set).context("descriptors of the contract")?;
    let by_name: HashMap<&str, &FileDescriptorProto> =
        parsed.file.iter().map(|file| (file.name(), file)).collect();
    let declares = |file: &FileDescriptorProto| {
        let names = file.service.iter();
        let mut names = names.map(|service| format!("{}.{}", file.package(), service.name()));
        names.any(|name| services.contains(&name.as_str()))
    };
    let mut open: Vec<&FileDescriptorProto> = parsed.file.iter().filter(|file| declares(file)).collect();
    let mut selected: HashSet<&str> = HashSet::new();
    while let Some(file) = open.pop() {
        if selected.insert(file.name()) {
            let imports = file.dependency.iter();
            open.extend(imports.filter_map(|name| by_name.get(name.as_str()).copied()));
        }
    }
    let files = parsed.file.iter().zip(raw.file);
    let file = files
        .filter(|(file, _)| selected.contains(file.name()))
        .map(|(_, raw)| raw)
        .collect();
    Ok(RawFiles { file }.encode_to_vec())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const DATA: &str = "oxtsdb.data.v1.DataService";
    const UID: &str = "oxtsdb.uid.v1.UidService";

    fn names(services: &[&str]) -> BTreeSet<String> {
        let set = files_of(oxtsdb_proto::FILE_DESCRIPTOR_SET, services).unwrap();
        let set = FileDescriptorSet::decode(set.as_slice()).unwrap();
        set.file.iter().map(|file| file.name().to_owned()).collect()
    }

    #[test]
    fn selects_files_of_services_and_their_imports() {
        let data = names(&[DATA]);
        for file in [
            "oxtsdb/data/v1/data_service.proto",
            "oxtsdb/common/v1/common.proto",
            "google/protobuf/descriptor.proto",
        ] {
            assert!(data.contains(file), "{data:?}");
        }
        assert!(!data.iter().any(|name| name.contains("uid/v1")), "{data:?}");
        let uid = names(&[UID]);
        assert!(!uid.iter().any(|name| name.contains("data/v1")), "{uid:?}");
        assert_eq!(names(&[DATA, UID]), &data | &uid);
        assert!(names(&[]).is_empty());
    }

    #[test]
    fn the_descriptor_set_has_each_file_once_after_its_imports() {
        let set = FileDescriptorSet::decode(descriptor_set().unwrap().as_slice()).unwrap();
        let mut before = BTreeSet::new();
        for file in &set.file {
            for import in &file.dependency {
                assert!(before.contains(import.as_str()), "{} of {}", import, file.name());
            }
            assert!(before.insert(file.name()), "{} twice", file.name());
        }
        for file in [
            "oxtsdb/data/v1/data_service.proto",
            "oxtsdb/uid/v1/uid_service.proto",
            "error_details.proto",
        ] {
            assert!(before.contains(file), "{before:?}");
        }
    }

    #[test]
    fn keeps_custom_options() {
        let contains = |set: &[u8]| set.windows(9).any(|bytes| bytes == b"max_items");
        let parsed = FileDescriptorSet::decode(oxtsdb_proto::FILE_DESCRIPTOR_SET).unwrap();
        let services: Vec<String> = parsed
            .file
            .iter()
            .flat_map(|file| {
                let names = file.service.iter();
                names.map(|service| format!("{}.{}", file.package(), service.name()))
            })
            .collect();
        let services: Vec<&str> = services.iter().map(String::as_str).collect();
        let all = files_of(oxtsdb_proto::FILE_DESCRIPTOR_SET, &services).unwrap();
        assert!(contains(&all));
        assert_eq!(all.len(), oxtsdb_proto::FILE_DESCRIPTOR_SET.len());
    }
}
