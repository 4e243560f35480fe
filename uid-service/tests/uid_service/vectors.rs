//! Cells of table `tsdb-uid` as OpenTSDB 2.4.1 wrote them to HBase, reproduced call by call.
use crate::support::{Cell, Service, Wrapped, cell, counter};
use oxtsdb_schema::UidKind::{Metric, Tagk, Tagv};
use uid_service::UidSettings;

/// The cells of one complete mapping.
fn mapping(kind: oxtsdb_schema::UidKind, name: &[u8], uid: &str) -> [Cell; 2] {
    let uid = hex::decode(uid).unwrap();
    [cell(&uid, "name", kind, name), cell(name, "id", kind, &uid)]
}

fn sorted<const N: usize>(cells: [Vec<Cell>; N]) -> Vec<Cell> {
    let mut cells = cells.concat();
    cells.sort();
    cells
}

async fn both_ways(settings: UidSettings, check: impl AsyncFn(Service)) {
    check(Service::start(Wrapped::atomic(), &settings).await).await;
    check(Service::start(Wrapped::stepwise(), &settings).await).await;
}

#[tokio::test]
async fn names_assigned_one_by_one_and_in_batches() {
    both_ways(UidSettings::default(), async |service: Service| {
        service.assign(Metric, &["sys.cpu.user"]).await;
        service.assign(Metric, &["sys.mem.free", "app.lat"]).await;
        for tagk in ["host", "dc", "cpu"] {
            service.assign(Tagk, &[tagk]).await;
        }
        service.assign(Tagv, &["web01", "web02", "lax", "0"]).await;
        let v01_to_v03 = sorted([
            vec![counter(Metric, 3), counter(Tagk, 3), counter(Tagv, 4)],
            mapping(Metric, b"sys.cpu.user", "000001").into(),
            mapping(Metric, b"sys.mem.free", "000002").into(),
            mapping(Metric, b"app.lat", "000003").into(),
            mapping(Tagk, b"host", "000001").into(),
            mapping(Tagk, b"dc", "000002").into(),
            mapping(Tagk, b"cpu", "000003").into(),
            mapping(Tagv, b"web01", "000001").into(),
            mapping(Tagv, b"web02", "000002").into(),
            mapping(Tagv, b"lax", "000003").into(),
            mapping(Tagv, b"0", "000004").into(),
        ]);
        assert_eq!(service.cells().await, v01_to_v03);

        // V45: all names are known, nothing changes.
        service.assign(Metric, &["sys.cpu.user"]).await;
        service.assign(Tagk, &["host", "dc", "cpu"]).await;
        service.assign(Tagv, &["web01", "lax", "0"]).await;
        assert_eq!(service.cells().await, v01_to_v03);

        // V48: one byte for each character of ISO-8859-1.
        service.assign(Metric, &["é"]).await;
        let v48 = sorted([
            vec![counter(Metric, 4)],
            v01_to_v03
                .into_iter()
                .filter(|cell| *cell != counter(Metric, 3))
                .collect(),
            mapping(Metric, &[0xe9], "000004").into(),
        ]);
        assert_eq!(service.cells().await, v48);
    })
    .await;
}

#[tokio::test]
async fn v78_high_numbers_follow_preset_counters() {
    both_ways(UidSettings::default(), async |service: Service| {
        service.preset(Metric, &0xfe_dc80_u64.to_be_bytes()).await;
        service.preset(Tagv, &0x80_ff7e_u64.to_be_bytes()).await;
        service.assign(Metric, &["hi.m"]).await;
        service.assign(Tagv, &["hi1"]).await;
        service.assign(Tagv, &["hi2"]).await;
        let v78 = sorted([
            vec![counter(Metric, 0xfe_dc81), counter(Tagv, 0x80_ff80)],
            mapping(Metric, b"hi.m", "fedc81").into(),
            mapping(Tagv, b"hi1", "80ff7f").into(),
            mapping(Tagv, b"hi2", "80ff80").into(),
        ]);
        assert_eq!(service.cells().await, v78);
    })
    .await;
}

#[tokio::test]
async fn v81_and_v82_widths_of_four_two_and_five_bytes() {
    let mut settings = UidSettings::default();
    settings.tables.uid_width_metric = 4;
    settings.tables.uid_width_tagk = 2;
    settings.tables.uid_width_tagv = 5;
    both_ways(settings, async |service: Service| {
        service.assign(Metric, &["sys.cpu.user"]).await;
        service.assign(Tagk, &["host"]).await;
        service.assign(Tagv, &["web01"]).await;
        service.assign(Tagv, &["web02"]).await;
        service.assign(Tagk, &["dc"]).await;
        service.assign(Tagv, &["lax"]).await;
        let v82 = sorted([
            vec![counter(Metric, 1), counter(Tagk, 2), counter(Tagv, 3)],
            mapping(Metric, b"sys.cpu.user", "00000001").into(),
            mapping(Tagk, b"host", "0001").into(),
            mapping(Tagk, b"dc", "0002").into(),
            mapping(Tagv, b"web01", "0000000001").into(),
            mapping(Tagv, b"web02", "0000000002").into(),
            mapping(Tagv, b"lax", "0000000003").into(),
        ]);
        assert_eq!(service.cells().await, v82);
    })
    .await;
}

#[tokio::test]
async fn v83_widths_of_four_bytes() {
    let mut settings = UidSettings::default();
    settings.tables.uid_width_metric = 4;
    settings.tables.uid_width_tagk = 4;
    settings.tables.uid_width_tagv = 4;
    both_ways(settings, async |service: Service| {
        service.assign(Metric, &["sys.cpu.user"]).await;
        service.assign(Tagk, &["host"]).await;
        service.assign(Tagv, &["web01"]).await;
        let v83 = sorted([
            vec![counter(Metric, 1), counter(Tagk, 1), counter(Tagv, 1)],
            mapping(Metric, b"sys.cpu.user", "00000001").into(),
            mapping(Tagk, b"host", "00000001").into(),
            mapping(Tagv, b"web01", "00000001").into(),
        ]);
        assert_eq!(service.cells().await, v83);
    })
    .await;
}

#[tokio::test]
async fn v115_the_last_number_is_assigned_and_the_counter_stays_there() {
    let mut settings = UidSettings::default();
    settings.tables.uid_width_metric = 1;
    both_ways(settings, async |service: Service| {
        service.preset(Metric, &0xfd_u64.to_be_bytes()).await;
        assert_eq!(service.assign(Metric, &["x1"]).await, ["fe"]);
        assert_eq!(service.assign(Metric, &["x2"]).await, ["ff"]);
        for _ in 0..2 {
            assert_eq!(service.assign(Metric, &["x3"]).await, ["UID_SPACE_EXHAUSTED"]);
        }
        // OpenTSDB's counter would be at 101 now; ours does not pass the largest number.
        let v115 = sorted([
            vec![counter(Metric, 0xff)],
            mapping(Metric, b"x1", "fe").into(),
            mapping(Metric, b"x2", "ff").into(),
        ]);
        assert_eq!(service.cells().await, v115);

        // A counter that OpenTSDB left beyond the largest number is understood, too.
        service.preset(Metric, &0x101_u64.to_be_bytes()).await;
        assert_eq!(
            service.assign(Metric, &["x4", "x1"]).await,
            ["UID_SPACE_EXHAUSTED", "fe"]
        );
        let usage = service.client.get_uid_usage().await.unwrap().kinds;
        assert_eq!((usage[0].used, usage[0].available), (0x101, 0));
    })
    .await;
}
