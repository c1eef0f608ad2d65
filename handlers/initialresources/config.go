package initialresources

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/handlers/internal/jsonclient"
)

const (
	configAPIVersion = "fastadmit.io/v1alpha1"
	configKind       = "InitialResourcesConfiguration"

	// percentileDefault is that of upstream's flag --ir-percentile.
	percentileDefault = 90

	// resolutionDefault has several scrapes in it, which are 15 s to a minute apart. A
	// query costs in proportion to the samples: upstream's 2 minutes of InfluxDB cost 2.5
	// times as much. resolutionMin is how long a sample was in Google Cloud Monitoring. With
	// more than resolutionMax a container has to run for more than a day to have enough.
	resolutionDefault = 5 * time.Minute
	resolutionMin     = time.Minute
	resolutionMax     = time.Hour
)

// configuration is the plugin's configuration file. Upstream had flags.
type configuration struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Source is a server with the HTTP API of Prometheus.
	Source jsonclient.Config `json:"source"`
	// Percentile of the samples is requested, 1 to 100; 90 if nil (--ir-percentile).
	Percentile *int64 `json:"percentile"`
	// NamespaceOnly says that samples of other namespaces do not count
	// (--ir-namespace-only).
	NamespaceOnly bool `json:"namespaceOnly"`
	// Resolution is over which time usage is averaged for a sample; 5 minutes if nil.
	Resolution *metav1.Duration `json:"resolution"`
}

func (c *configuration) validate() field.ErrorList {
	errs := admission.ValidateConfigType(c.APIVersion, configAPIVersion, c.Kind, configKind)
	errs = append(errs, c.Source.Validate(field.NewPath("source"))...)
	if p := c.percentile(); p < 1 || p > 100 {
		errs = append(errs, field.Invalid(field.NewPath("percentile"), p, "must be from 1 to 100"))
	}
	if r := c.resolution(); r < resolutionMin || r > resolutionMax || r%time.Second != 0 {
		errs = append(errs, field.Invalid(field.NewPath("resolution"), r.String(),
			fmt.Sprintf("must be whole seconds from %v to %v", resolutionMin, resolutionMax)))
	}
	return errs
}

func (c *configuration) percentile() int64 {
	if c.Percentile == nil {
		return percentileDefault
	}
	return *c.Percentile
}

func (c *configuration) resolution() time.Duration {
	if c.Resolution == nil {
		return resolutionDefault
	}
	return c.Resolution.Duration
}
