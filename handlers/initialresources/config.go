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

	// resolutionDefault spans several scrapes, which are 15 s to a minute apart. The cost of
	// a query is proportional to the number of samples: upstream's 2 minutes of InfluxDB
	// would cost 2.5 times as much. resolutionMin is the interval of samples in Google Cloud
	// Monitoring. Above resolutionMax, a container has to run for more than a day before
	// there are enough samples.
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
	// Percentile of the samples that becomes the request, 1 to 100; 90 if nil
	// (--ir-percentile).
	Percentile *int64 `json:"percentile"`
	// NamespaceOnly ignores samples of other namespaces (--ir-namespace-only).
	NamespaceOnly bool `json:"namespaceOnly"`
	// Resolution is the interval over which usage is averaged for a sample; 5 minutes if
	// nil.
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
