// Sends the metrics that ../check.py lists with OpenTelemetry's SDK for Go, and prints each data point that was exported.
//
//	otlp NAME
//
// The exporters read OTEL_EXPORTER_OTLP_METRICS_…; the protocol is the program's choice in Go.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	api "go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

const hosts = 200

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func must[T any](value T, err error) T {
	if err != nil {
		fail(err)
	}
	return value
}

func newExporter(ctx context.Context) (metric.Exporter, error) {
	switch protocol := os.Getenv("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL"); protocol {
	case "grpc":
		return otlpmetricgrpc.New(ctx)
	case "http/protobuf":
		return otlpmetrichttp.New(ctx)
	default:
		return nil, fmt.Errorf("protocol %q is not grpc or http/protobuf", protocol)
	}
}

// printing prints what its exporter has sent.
type printing struct{ metric.Exporter }

func (p printing) Export(ctx context.Context, metrics *metricdata.ResourceMetrics) error {
	if err := p.Exporter.Export(ctx, metrics); err != nil {
		return err
	}
	resource := values(*metrics.Resource.Set())
	for _, scope := range metrics.ScopeMetrics {
		for _, one := range scope.Metrics {
			for _, point := range points(one.Data) {
				point["metric"], point["resource"] = one.Name, resource
				fmt.Println(string(must(json.Marshal(point))))
			}
		}
	}
	return nil
}

func values(set attribute.Set) map[string]any {
	values := map[string]any{}
	for _, one := range set.ToSlice() {
		values[string(one.Key)] = one.Value.AsInterface()
	}
	return values
}

type object = map[string]any

func points(data metricdata.Aggregation) []object {
	switch data := data.(type) {
	case metricdata.Gauge[int64]:
		return numbers("gauge", 0, data.DataPoints)
	case metricdata.Gauge[float64]:
		return numbers("gauge", 0, data.DataPoints)
	case metricdata.Sum[int64]:
		return numbers("sum", data.Temporality, data.DataPoints)
	case metricdata.Sum[float64]:
		return numbers("sum", data.Temporality, data.DataPoints)
	case metricdata.Histogram[float64]:
		return histograms(data)
	case metricdata.ExponentialHistogram[float64]:
		return exponential(data)
	default:
		fail(fmt.Errorf("%T is not expected", data))
		return nil
	}
}

func temporality(of metricdata.Temporality) string {
	switch of {
	case metricdata.CumulativeTemporality:
		return "cumulative"
	case metricdata.DeltaTemporality:
		return "delta"
	default:
		return ""
	}
}

func numbers[N int64 | float64](kind string, of metricdata.Temporality, points []metricdata.DataPoint[N]) []object {
	var all []object
	for _, point := range points {
		all = append(all, object{
			"kind": kind, "temporality": temporality(of), "time": point.Time.UnixNano(),
			"attributes": values(point.Attributes), "value": point.Value,
		})
	}
	return all
}

func histograms(data metricdata.Histogram[float64]) []object {
	var all []object
	for _, point := range data.DataPoints {
		all = append(all, object{
			"kind": "histogram", "temporality": temporality(data.Temporality), "time": point.Time.UnixNano(),
			"attributes": values(point.Attributes), "count": point.Count, "sum": point.Sum,
			"min": extremum(point.Min), "max": extremum(point.Max),
			"bounds": point.Bounds, "counts": point.BucketCounts,
		})
	}
	return all
}

func exponential(data metricdata.ExponentialHistogram[float64]) []object {
	var all []object
	for _, point := range data.DataPoints {
		all = append(all, object{
			"kind": "exponential histogram", "temporality": temporality(data.Temporality), "time": point.Time.UnixNano(),
			"attributes": values(point.Attributes), "count": point.Count, "sum": point.Sum,
			"min": extremum(point.Min), "max": extremum(point.Max),
			"scale": point.Scale, "zero_count": point.ZeroCount,
			"positive": side(point.PositiveBucket), "negative": side(point.NegativeBucket),
		})
	}
	return all
}

func side(of metricdata.ExponentialBucket) object {
	return object{"offset": of.Offset, "counts": append([]uint64{}, of.Counts...)}
}

func extremum(of metricdata.Extrema[float64]) any {
	if value, defined := of.Value(); defined {
		return value
	}
	return nil
}

func main() {
	ctx, name := context.Background(), os.Args[1]
	otel.SetErrorHandler(otel.ErrorHandlerFunc(fail))
	exporter := must(newExporter(ctx))
	provider := metric.NewMeterProvider(
		metric.WithReader(metric.NewPeriodicReader(printing{exporter})),
		metric.WithView(metric.NewView(
			metric.Instrument{Name: name + ".size"},
			metric.Stream{Aggregation: metric.AggregationBase2ExponentialHistogram{MaxSize: 160, MaxScale: 20}},
		)),
	)
	meter := provider.Meter("sender")
	requests := must(meter.Int64Counter(name + ".requests"))
	queue := must(meter.Float64UpDownCounter(name + ".queue"))
	temperature := must(meter.Int64Gauge(name + ".temperature"))
	duration := must(meter.Float64Histogram(name+".duration", api.WithExplicitBucketBoundaries(0.1, 1)))
	size := must(meter.Float64Histogram(name + ".size"))
	must(meter.Float64ObservableGauge(name+".load", api.WithFloat64Callback(
		func(_ context.Context, observer api.Float64Observer) error {
			for host := range hosts {
				tag := attribute.String("host", fmt.Sprintf("web %d", host))
				observer.Observe(float64(host)/4, api.WithAttributes(tag))
			}
			return nil
		})))
	route := attribute.String("route", "/a")
	all := api.WithAttributes(route, attribute.Bool("ok", true), attribute.Int("status", 200),
		attribute.Float64("share", 0.5), attribute.StringSlice("list", []string{"a", "b"}))
	for range 2 {
		requests.Add(ctx, 3, all)
		queue.Add(ctx, 1.5)
		queue.Add(ctx, -0.25)
		temperature.Record(ctx, -9007199254740991)
		for _, value := range []float64{0.05, 0.5, 0.5, 5} {
			duration.Record(ctx, value, api.WithAttributes(route))
		}
		for _, value := range []float64{0, 0.001, 1, 4096} {
			size.Record(ctx, value)
		}
		if err := provider.ForceFlush(ctx); err != nil {
			fail(err)
		}
	}
	if err := provider.Shutdown(ctx); err != nil {
		fail(err)
	}
}
