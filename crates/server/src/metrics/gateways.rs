//! HBase's gateways.

use std::collections::BTreeMap;
use std::sync::Arc;

use oxtsdb_row_store::GatewayFigures;
use oxtsdb_row_store::hbase::Hbase;

use super::Metrics;

impl Metrics {
    /// Adds the gateways of HBase; the figures of one that is configured several times are added up.
    pub(crate) fn collect_gateways(&self, hbase: Arc<dyn Hbase>) {
        self.collect(move |figures| {
            let mut gateways: BTreeMap<String, GatewayFigures> = BTreeMap::new();
            for gateway in hbase.gateways() {
                match gateways.get_mut(&gateway.address) {
                    Some(sum) => add(sum, &gateway),
                    None => drop(gateways.insert(gateway.address.clone(), gateway)),
                }
            }
            let of = |value: fn(&GatewayFigures) -> u64| {
                let gateways = gateways.iter();
                gateways.map(move |(address, gateway)| (address.as_str(), value(gateway)))
            };
            figures.gauge_by(
                "hbase_gateway_up",
                "Whether the last attempt to connect to a gateway succeeded",
                "gateway",
                of(|gateway| u64::from(gateway.is_up)),
            );
            figures.counter_by(
                "hbase_calls_failed",
                "Calls that failed, with an exception of HBase or a broken connection",
                "gateway",
                of(|gateway| gateway.failed),
            );
            figures.durations_by(
                "hbase_call_seconds",
                "How long calls take, failed ones included",
                "gateway",
                gateways
                    .iter()
                    .map(|(address, gateway)| (address.as_str(), gateway.calls.clone())),
            );
        });
    }
}

fn add(sum: &mut GatewayFigures, other: &GatewayFigures) {
    sum.is_up &= other.is_up;
    sum.failed += other.failed;
    for (count, other) in sum.calls.counts.iter_mut().zip(other.calls.counts) {
        *count += other;
    }
    sum.calls.sum += other.calls.sum;
}

#[cfg(test)]
mod tests {
    use oxtsdb_resources::Durations;

    use super::*;

    #[test]
    fn figures_of_a_gateway_that_is_configured_twice_are_added_up() {
        let durations = Durations::default();
        durations.observe(std::time::Duration::from_millis(3));
        let figures = |is_up, failed| GatewayFigures {
            address: "gateway:9090".to_owned(),
            is_up,
            failed,
            calls: durations.counts(),
        };
        let mut sum = figures(true, 1);
        add(&mut sum, &figures(false, 2));
        assert_eq!((sum.is_up, sum.failed), (false, 3));
        assert_eq!(sum.calls.counts.iter().sum::<u64>(), 2);
        assert_eq!(sum.calls.sum, std::time::Duration::from_millis(6));
    }
}
