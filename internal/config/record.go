package config

import (
	"fmt"
	"regexp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Record are the settings for recording reviews. The tags are those of Server.
type Record struct {
	Dir       string          `json:"dir" flag:"record-dir" usage:"folder to record reviews and their answers in, for fastadmit replay; if empty, nothing is recorded"`
	Sample    int64           `json:"sample" flag:"record-sample" min:"0" usage:"record one in so many allowed reviews, 0 for none; denied and failed reviews are all recorded"`
	Rate      int64           `json:"rate" flag:"record-rate" min:"1" usage:"maximum of reviews to record in a second"`
	Resources []string        `json:"resources" flag:"record-resources" usage:"resources whose reviews are recorded, as pods,deployments.apps,pods/exec; if empty, all"`
	MaxFiles  int64           `json:"maxFiles" flag:"record-max-files" min:"1" usage:"maximum of recordings in --record-dir, of two files each; the oldest are removed first"`
	MaxBytes  int64           `json:"maxBytes" flag:"record-max-bytes" min:"1" usage:"maximum of bytes of recordings in --record-dir; the oldest are removed first"`
	MaxAge    metav1.Duration `json:"maxAge" flag:"record-max-age" min:"1" usage:"age at which recordings are removed"`
	Secrets   bool            `json:"secrets" flag:"record-secrets" usage:"record reviews as they come, with the data of Secrets, tokens, and arguments of pods/exec"`
}

const (
	// By default, one of recordSample allowed reviews is recorded. In a cluster with ten reviews a
	// second, 10,000 recordings are those of more than a day.
	recordSample = 100

	// recordRate is the default maximum of recorded reviews per second. It bounds the load on the disk if
	// a controller is denied in a loop.
	recordRate = 20

	// recordFiles and recordBytes are the default bounds of recordings: 10,000 reviews with 12 KiB each,
	// including 4 KiB for the answer.
	recordFiles = 10_000
	recordBytes = 128 << 20

	// recordAge is how long recordings stay by default: a week, so that they include everything that
	// happens once a week.
	recordAge = 7 * 24 * time.Hour

	// recordRateMax is the largest valid rate: more reviews per second than a disk can store.
	recordRateMax = 1_000_000
)

// DefaultRecord returns the default settings for recording.
func DefaultRecord() Record {
	return Record{
		Sample: recordSample, Rate: recordRate, Resources: []string{},
		MaxFiles: recordFiles, MaxBytes: recordBytes, MaxAge: metav1.Duration{Duration: recordAge},
	}
}

// resourcePattern matches valid elements of Resources.
var resourcePattern = regexp.MustCompile(`^[a-z0-9]+(?:\.[a-z0-9.-]+)?(?:/[a-z0-9]+)?$`)

// Faults returns the settings that are out of range.
func (r *Record) Faults() []Fault {
	all := faults(r)
	for _, name := range r.Resources {
		if !resourcePattern.MatchString(name) {
			all = append(all, Fault{"resources", "record-resources", fmt.Sprintf("got %q, want a resource with its group, and perhaps a subresource, as pods, deployments.apps or pods/exec", name)})
		}
	}
	if r.Rate > recordRateMax {
		all = append(all, Fault{"rate", "record-rate", fmt.Sprintf("got %d, want at most %d", r.Rate, recordRateMax)})
	}
	return all
}
