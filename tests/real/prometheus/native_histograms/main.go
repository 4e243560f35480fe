// Writes native histograms of Prometheus' client library by remote write 1.0 and 2.0, as integers and as floating point, in the
// messages of Prometheus 3. Each stored `le` has the count of the observed values up to it.
//
//	native_histograms SERVER
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"math"
	"math/rand"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/prompb"
	v2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"
)

const observations = 500

func main() {
	log.SetFlags(0)
	if len(os.Args) != 2 {
		log.Fatal("native_histograms SERVER")
	}
	now, bounds := time.Now().UnixMilli(), 0
	// Factors of the schemas 3, -1 and 8.
	for place, factor := range []float64{1.1, 4, 1.003} {
		values := random()
		integers := native(factor, values)
		floats := integers.ToFloat(nil)
		for form, body := range map[string]func(name string) ([]byte, error){
			"int":       func(name string) ([]byte, error) { return request(name, prompb.FromIntHistogram(now, integers)) },
			"float":     func(name string) ([]byte, error) { return request(name, prompb.FromFloatHistogram(now, floats)) },
			"int_two":   func(name string) ([]byte, error) { return request2(name, v2.FromIntHistogram(now, integers)) },
			"float_two": func(name string) ([]byte, error) { return request2(name, v2.FromFloatHistogram(now, floats)) },
		} {
			name := fmt.Sprintf("native_%s_%d", form, place)
			if err := write(name, body); err != nil {
				log.Fatalf("%s: %v", name, err)
			}
			compared, err := compare(name, strconv.FormatInt(now, 10), values)
			if err != nil {
				log.Fatalf("%s: %v", name, err)
			}
			bounds += compared
		}
	}
	fmt.Printf("Prometheus: the native histograms of two versions are stored, with %d bounds\n", bounds)
}

// random returns values of both signs, and zeros.
func random() []float64 {
	values := make([]float64, observations)
	for place := range values {
		values[place] = []float64{1, 1, 1, 1, -1, 0}[rand.Intn(6)] * math.Exp(rand.NormFloat64()*1.5)
	}
	return values
}

// native returns the histogram of values as a Prometheus that scrapes it has it.
func native(factor float64, values []float64) *histogram.Histogram {
	observed := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "h", NativeHistogramBucketFactor: factor})
	for _, value := range values {
		observed.Observe(value)
	}
	var metric dto.Metric
	if err := observed.Write(&metric); err != nil {
		log.Fatal(err)
	}
	message := metric.GetHistogram()
	result := &histogram.Histogram{
		Schema:          message.GetSchema(),
		Count:           message.GetSampleCount(),
		Sum:             message.GetSampleSum(),
		ZeroThreshold:   message.GetZeroThreshold(),
		ZeroCount:       message.GetZeroCount(),
		PositiveSpans:   spans(message.PositiveSpan),
		NegativeSpans:   spans(message.NegativeSpan),
		PositiveBuckets: message.PositiveDelta,
		NegativeBuckets: message.NegativeDelta,
	}
	if err := result.Validate(); err != nil {
		log.Fatal(err)
	}
	return result
}

func spans(messages []*dto.BucketSpan) []histogram.Span {
	spans := make([]histogram.Span, len(messages))
	for place, message := range messages {
		spans[place] = histogram.Span{Offset: message.GetOffset(), Length: message.GetLength()}
	}
	return spans
}

func request(name string, one prompb.Histogram) ([]byte, error) {
	labels := []prompb.Label{{Name: "__name__", Value: name}, {Name: "job", Value: "check"}}
	series := prompb.TimeSeries{Labels: labels, Histograms: []prompb.Histogram{one}}
	return (&prompb.WriteRequest{Timeseries: []prompb.TimeSeries{series}}).Marshal()
}

func request2(name string, one v2.Histogram) ([]byte, error) {
	series := v2.TimeSeries{LabelsRefs: []uint32{1, 2, 3, 4}, Histograms: []v2.Histogram{one}}
	return (&v2.Request{
		Symbols:    []string{"", "__name__", name, "job", "check"},
		Timeseries: []v2.TimeSeries{series},
	}).Marshal()
}

// write stores a histogram, and checks that the server counts it.
func write(name string, body func(name string) ([]byte, error)) error {
	message, err := body(name)
	if err != nil {
		return err
	}
	compressed := bytes.NewReader(snappy.Encode(nil, message))
	request, err := http.NewRequest(http.MethodPost, os.Args[1]+"/api/v1/write", compressed)
	if err != nil {
		return err
	}
	request.Header.Set("Content-Encoding", "snappy")
	request.Header.Set("Content-Type", "application/x-protobuf")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	written := response.Header.Get("X-Prometheus-Remote-Write-Histograms-Written")
	if err == nil && (response.StatusCode != http.StatusNoContent || written != "1") {
		err = fmt.Errorf("%s, %s histograms written: %s", response.Status, written, text)
	}
	return err
}

// compare returns how many bounds are stored, each with the count of the values up to it.
func compare(name, instant string, values []float64) (int, error) {
	response, err := http.Get(fmt.Sprintf("%s/api/query?start=1h-ago&ms&m=none:%s_bucket%%7B%%7D", os.Args[1], name))
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	var series []struct {
		Tags map[string]string
		Dps  map[string]float64
	}
	if err := json.NewDecoder(response.Body).Decode(&series); err != nil {
		return 0, err
	}
	hasAll := false
	for _, one := range series {
		bound := math.Inf(1)
		if text := one.Tags["le"]; text == "_Inf" {
			hasAll = true
		} else if bound, err = strconv.ParseFloat(text, 64); err != nil {
			return 0, err
		}
		expected := 0
		for _, value := range values {
			if value <= bound {
				expected++
			}
		}
		if stored, ok := one.Dps[instant]; !ok || stored != float64(expected) {
			return 0, fmt.Errorf("le=%s has %v in place of %d", one.Tags["le"], one.Dps, expected)
		}
	}
	if !hasAll || len(series) < 5 {
		return 0, fmt.Errorf("only %d bounds", len(series))
	}
	return len(series), nil
}
