package docs

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// MetricMethods are the methods that may create metrics, with the names that these may have (Prometheus, "Metric and
// label naming"). GetOrCreate is for series that depend on the configuration and may exist already. NewHistogram is
// missing, because Prometheus cannot use its buckets.
var MetricMethods = map[string]*regexp.Regexp{
	"NewCounter":                regexp.MustCompile(`^fastadmit(_[a-z]+)+_total$`),
	"NewGauge":                  regexp.MustCompile(`^fastadmit(_[a-z]+)+$`),
	"NewPrometheusHistogram":    regexp.MustCompile(`^fastadmit(_[a-z]+)+_(seconds|bytes)$`),
	"NewPrometheusHistogramExt": regexp.MustCompile(`^fastadmit(_[a-z]+)+_(seconds|bytes)$`),

	"GetOrCreateCounter":                regexp.MustCompile(`^fastadmit(_[a-z]+)+_total$`),
	"GetOrCreatePrometheusHistogramExt": regexp.MustCompile(`^fastadmit(_[a-z]+)+_(seconds|bytes|cost)$`),
}

var (
	metricSeries = regexp.MustCompile(`^(fastadmit_[^{]*)(\{.*)?$`)
	metricLabel  = regexp.MustCompile(`[{,]\s*(\w+)=`)
)

// A Series is a name of series in a call that creates a metric.
type Series struct {
	Method string // one of MetricMethods
	Name   string
	Labels []string
	At     token.Position
}

// AllSeries returns the series that the code creates, without tests.
func AllSeries(sources []Source) (all []Series) {
	for _, s := range sources {
		if s.IsTest {
			continue
		}
		ast.Inspect(s.File, func(node ast.Node) bool {
			call, ok := node.(*ast.CallExpr)
			if !ok {
				return true
			}
			if method, ok := call.Fun.(*ast.SelectorExpr); ok && MetricMethods[method.Sel.Name] != nil {
				all = append(all, s.seriesOf(call, method.Sel.Name)...)
			}
			return true
		})
	}
	return all
}

// seriesOf returns the series in a call.
func (s *Source) seriesOf(call *ast.CallExpr, method string) (all []Series) {
	ast.Inspect(call, func(node ast.Node) bool {
		literal, ok := node.(*ast.BasicLit)
		if !ok || literal.Kind != token.STRING {
			return true
		}
		text, err := strconv.Unquote(literal.Value)
		if match := metricSeries.FindStringSubmatch(text); err == nil && match != nil {
			series := Series{Method: method, Name: match[1], At: s.At(literal)}
			for _, label := range metricLabel.FindAllStringSubmatch(match[2], -1) {
				series.Labels = append(series.Labels, label[1])
			}
			all = append(all, series)
		}
		return true
	})
	return all
}

// MetricTexts returns the help texts of metrics: the map in metrics_help.go.
func MetricTexts(sources []Source) (map[string]string, error) {
	texts := make(map[string]string)
	i := slices.IndexFunc(sources, func(s Source) bool { return path.Base(s.Path) == "metrics_help.go" })
	if i < 0 {
		return nil, fmt.Errorf("got no file metrics_help.go with the help texts of metrics")
	}
	var failed error
	ast.Inspect(sources[i].File, func(node ast.Node) bool {
		pair, ok := node.(*ast.KeyValueExpr)
		if !ok {
			return true
		}
		key, isKey := pair.Key.(*ast.BasicLit)
		value, isValue := pair.Value.(*ast.BasicLit)
		if isKey && isValue {
			name, err := strconv.Unquote(key.Value)
			text, textErr := strconv.Unquote(value.Value)
			texts[name], failed = text, cmp.Or(failed, err, textErr)
		}
		return true
	})
	return texts, failed
}

// metricTable makes a table of all metrics, of the calls that create them and their help texts.
func (g *generator) metricTable() (string, error) {
	texts, err := MetricTexts(g.sources)
	if err != nil {
		return "", err
	}
	kinds, labels := make(map[string]string), make(map[string][]string)
	for _, series := range AllSeries(g.sources) {
		kinds[series.Name] = kindOf(series.Method)
		labels[series.Name] = append(labels[series.Name], series.Labels...)
	}
	table := "| metric | type | labels | meaning |\n|---|---|---|---|\n"
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		all := slices.Compact(slices.Sorted(slices.Values(labels[name])))
		table += fmt.Sprintf("| `%s` | %s | %s | %s |\n", name, cmp.Or(kinds[name], "gauge"), strings.Join(all, ", "), tableCell(texts[name]))
	}
	return table, nil
}

func kindOf(method string) string {
	switch {
	case strings.HasSuffix(method, "Counter"):
		return "counter"
	case strings.HasSuffix(method, "Gauge"):
		return "gauge"
	}
	return "histogram"
}
