// Reads series by the client of remote read that Prometheus 3 has, and prints them: the Prometheus of Debian accepts samples
// alone, this client prefers streamed chunks. Metrics come on the standard input, one a line; each becomes a line of JSON:
//
//	{"up": [[{"job": "itself"}, {"1700000000123": "1"}]]}
//
// It fails if a response is not streamed, and if series do not ascend by their labels, as Prometheus requires.
//
//	remote_read URL START_MS END_MS
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/url"
	"os"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	common "github.com/prometheus/common/config"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/storage/remote"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
)

func main() {
	log.SetFlags(0)
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	if len(os.Args) != 4 {
		return fmt.Errorf("remote_read URL START_MS END_MS")
	}
	address, err := url.Parse(os.Args[1])
	if err != nil {
		return err
	}
	start, err := strconv.ParseInt(os.Args[2], 10, 64)
	if err != nil {
		return err
	}
	end, err := strconv.ParseInt(os.Args[3], 10, 64)
	if err != nil {
		return err
	}
	client, err := remote.NewReadClient("check", &remote.ClientConfig{
		URL:              &common.URL{URL: address},
		Timeout:          model.Duration(time.Minute),
		ChunkedReadLimit: config.DefaultChunkedReadLimit,
	})
	if err != nil {
		return err
	}
	all := remote.NewSampleAndChunkQueryableClient(client, labels.EmptyLabels(), nil, true, nil)
	querier, err := all.Querier(start, end)
	if err != nil {
		return err
	}
	defer querier.Close()
	out := json.NewEncoder(os.Stdout)
	metrics := bufio.NewScanner(os.Stdin)
	queries := 0
	for metrics.Scan() {
		series, err := read(querier, metrics.Text())
		if err != nil {
			return fmt.Errorf("%s: %w", metrics.Text(), err)
		}
		if err := out.Encode(map[string]any{metrics.Text(): series}); err != nil {
			return err
		}
		queries++
	}
	if streamed := counted("chunked"); streamed != queries {
		return fmt.Errorf("%d of %d responses were streamed", streamed, queries)
	}
	log.Printf("%d responses of streamed chunks", queries)
	return metrics.Err()
}

// read returns the series of a metric: labels, and values by millisecond.
func read(querier storage.Querier, metric string) ([][2]map[string]string, error) {
	name := labels.MustNewMatcher(labels.MatchEqual, labels.MetricName, metric)
	set := querier.Select(context.Background(), true, nil, name)
	all := [][2]map[string]string{}
	var last labels.Labels
	var samples chunkenc.Iterator
	for set.Next() {
		series := set.At()
		if len(all) > 0 && labels.Compare(last, series.Labels()) >= 0 {
			return nil, fmt.Errorf("%s follows %s", series.Labels(), last)
		}
		last = series.Labels()
		values := map[string]string{}
		samples = series.Iterator(samples)
		for kind := samples.Next(); kind != chunkenc.ValNone; kind = samples.Next() {
			at, value := samples.At()
			values[strconv.FormatInt(at, 10)] = strconv.FormatFloat(value, 'g', -1, 64)
		}
		if err := samples.Err(); err != nil {
			return nil, err
		}
		all = append(all, [2]map[string]string{last.Map(), values})
	}
	return all, set.Err()
}

// counted returns how many responses of a type the client has read to their ends.
func counted(responseType string) int {
	families, err := prometheus.DefaultGatherer.Gather()
	if err != nil {
		log.Fatal(err)
	}
	total := 0.0
	for _, family := range families {
		if family.GetName() != "prometheus_remote_storage_read_queries_total" {
			continue
		}
		for _, one := range family.Metric {
			if has(one, "response_type", responseType) && has(one, "code", "200") {
				total += one.GetCounter().GetValue()
			}
		}
	}
	return int(total)
}

func has(metric *dto.Metric, name, value string) bool {
	for _, label := range metric.Label {
		if label.GetName() == name {
			return label.GetValue() == value
		}
	}
	return false
}
