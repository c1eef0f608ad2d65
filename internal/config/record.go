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
	// recordSample is which part of the allowed reviews is recorded by default: one in so many. In a
	// cluster with ten reviews a second, 10,000 recordings reach back for more than a day.
	recordSample = 100

	// recordRate is how many reviews are recorded in a second by default: a controller that is denied in a
	// loop takes no more of the disk.
	recordRate = 20

	// recordFiles and recordBytes bound what is recorded by default: 10,000 reviews with 12 KiB each, of
	// which an answer takes 4 KiB.
	recordFiles = 10_000
	recordBytes = 128 << 20

	// recordAge is how long recordings stay by default: a week has all that happens in a cluster once a
	// week.
	recordAge = 7 * 24 * time.Hour

	// recordRateMax is the most reviews to record in a second. More than a disk takes.
	recordRateMax = 1_000_000
)

// DefaultRecord returns the default settings for recording.
func DefaultRecord() Record {
	return Record{
		Sample: recordSample, Rate: recordRate, Resources: []string{},
		MaxFiles: recordFiles, MaxBytes: recordBytes, MaxAge: metav1.Duration{Duration: recordAge},
	}
}

// resourcePattern is what Resources may have.
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
