package initialresources

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/distribution/reference"
	kjson "sigs.k8s.io/json"

	"github.com/fastadmit/fastadmit/codec"
)

// stepsPerOctave is the number of steps between a number and its double. It bounds the size
// of the answer, whatever the number of samples. A step is 0.54 % wide, much less than usage
// changes from one day to the next.
const stepsPerOctave = 128

// A question asks for the usage of a resource by containers with an image.
type question struct {
	resource string
	image    string
	exact    bool   // only this tag or digest; otherwise any tag
	within   string // the namespace, empty for all
	days     int    // before now
}

// query returns the question in PromQL. A sample is the average usage of a container over
// the resolution. The answer has the number of samples in each step, with the step in the
// label v; step -1 is for values below 1.
func (q *question) query(resolution time.Duration) string {
	step := fmt.Sprintf("%ds", int64(resolution/time.Second))
	selector := `{image=~` + quote(q.images())
	if q.within != "" {
		selector += `,namespace=` + quote(q.within)
	}
	usage := `avg_over_time(container_memory_usage_bytes` + selector + `}[` + step + `])`
	if q.resource == resourceCPU {
		usage = `1000 * sum without (cpu) (rate(container_cpu_usage_seconds_total` + selector + `}[` + step + `]))`
	}
	return fmt.Sprintf(`sum_over_time(count_values("v", clamp_min(ceil(%d * log2(%s)), -1))[%dd:%s])`, stepsPerOctave, usage, q.days, step)
}

// images returns a regular expression that matches the names of the images; Prometheus
// anchors it. Container runtimes report full names, but a pod may use a short one.
func (q *question) images() string {
	names := []string{regexp.QuoteMeta(q.image)}
	if whole := wholeName(q.image, q.exact); whole != "" && whole != q.image {
		names = append(names, regexp.QuoteMeta(whole))
	}
	if !q.exact {
		for i := range names {
			names[i] += `([:@].*)?`
		}
	}
	return strings.Join(names, "|")
}

// wholeName returns the full name with registry, and with tag or digest if exact; empty if
// the image is not a valid name.
func wholeName(image string, exact bool) string {
	named, err := reference.ParseDockerRef(image)
	if err != nil {
		return ""
	}
	if !exact {
		return named.Name()
	}
	return named.String()
}

// quote returns a string literal of PromQL, which has the syntax of Go's.
func quote(s string) string { return strconv.Quote(s) }

// An answer is the response to an instant query of the HTTP API of Prometheus.
type answer struct {
	Status string `json:"status"`
	Data   struct {
		ResultType string  `json:"resultType"`
		Result     results `json:"result"`
	} `json:"data"`
}

// resultsMax is how many results an answer may have: one for each step from -1.
const resultsMax = 63*stepsPerOctave + 2

type result struct {
	Metric struct {
		V string `json:"v"`
	} `json:"metric"`
	Value [2]json.RawMessage `json:"value"` // time and value
}

type results []result

// UnmarshalJSON implements json.Unmarshaler. It counts the results before they take memory: 1 MiB
// has 350,000 of them, of 64 bytes each.
func (r *results) UnmarshalJSON(text []byte) error {
	o := new(codec.Object)
	o.Reset(text)
	if n := o.Root().Len(); n > resultsMax {
		return fmt.Errorf("got %d results, want at most %d", n, resultsMax)
	}
	return kjson.UnmarshalCaseSensitivePreserveInts(text, (*[]result)(r))
}

// A usage is the result of a query: a percentile, and the number of samples.
type usage struct{ value, samples int64 }

// percentile returns the percentile as upstream does: the smallest value such that so many
// percent of the samples are not larger.
func (a *answer) percentile(percent int64) (usage, error) {
	if a.Status != "success" || a.Data.ResultType != "vector" {
		return usage{}, fmt.Errorf("got an answer with status %.20q and result type %.20q, want success and vector", a.Status,
			a.Data.ResultType)
	}
	type step struct{ at, samples int64 }
	var steps []step
	var all int64
	for i := range a.Data.Result {
		r := &a.Data.Result[i]
		at, err := strconv.ParseInt(r.Metric.V, 10, 64)
		if err != nil || at < -1 || at > 63*stepsPerOctave {
			return usage{}, fmt.Errorf("got step %.40q, want an integer from -1 to %d", r.Metric.V, 63*stepsPerOctave)
		}
		var text string
		if len(r.Value[1]) > 0 {
			_ = kjson.UnmarshalCaseSensitivePreserveInts(r.Value[1], &text) // after an error, text is empty, and parsing it fails
		}
		samples, err := strconv.ParseFloat(text, 64)
		if err != nil || !(samples >= 0 && samples <= samplesMax) {
			return usage{}, fmt.Errorf("got %.40q samples, want a number from 0 to %d", text, samplesMax)
		}
		steps = append(steps, step{at, int64(samples)})
		all += int64(samples)
	}
	slices.SortFunc(steps, func(a, b step) int { return int(a.at - b.at) })
	rank := (all*percent + 99) / 100
	for _, s := range steps {
		if rank -= s.samples; rank <= 0 && s.samples > 0 {
			return usage{valueOf(s.at), all}, nil
		}
	}
	return usage{}, nil
}

// samplesMax is more than any server counts in a step, and small enough that the sum of all
// steps, times 100, fits into an int64.
const samplesMax = 1 << 40

// valueOf returns the largest integer in a step.
func valueOf(step int64) int64 {
	return int64(min(math.Exp2(float64(step)/stepsPerOctave), math.MaxInt64/2))
}
