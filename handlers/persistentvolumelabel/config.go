package persistentvolumelabel

import (
	"context"
	"errors"
	"maps"
	"net/url"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/handlers/internal/jsonclient"
)

const (
	configAPIVersion = "fastadmit.io/v1alpha1"
	configKind       = "PersistentVolumeLabelConfiguration"

	// answerMax is the maximum length of an answer, in bytes. A few labels have less than 1 KB. The
	// labels of the longest answer take 200 KB in memory, and each review in flight may have one.
	answerMax = 16 << 10
)

// configuration is the plugin's configuration file. Upstream reads the cloud provider's.
type configuration struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Volumes are disks with their labels.
	Volumes []volume `json:"volumes"`
	// Endpoint is a server that is asked about disks that are not in Volumes.
	Endpoint *jsonclient.Config `json:"endpoint"`
}

type volume struct {
	Provider string `json:"provider"` // aws, gce, azure or vsphere
	// ID is the volumeID, pdName, diskURI or volumePath of a PersistentVolume.
	ID     string            `json:"id"`
	Labels map[string]string `json:"labels"`
}

func (v *volume) validate(at *field.Path) (errs field.ErrorList) {
	if findProvider(v.Provider) == nil {
		errs = append(errs, field.NotSupported(at.Child("provider"), v.Provider, names()))
	}
	if v.ID == "" || len(v.ID) > idMax {
		errs = append(errs, field.Invalid(at.Child("id"), v.ID, "must have from 1 to 1024 bytes"))
	}
	if len(v.Labels) == 0 {
		errs = append(errs, field.Required(at.Child("labels"), "the zone and region of the volume"))
	}
	for _, key := range slices.Sorted(maps.Keys(v.Labels)) {
		if err := checkLabel(key, v.Labels[key]); err != nil {
			errs = append(errs, field.Invalid(at.Child("labels").Key(key), v.Labels[key], err.Error()))
		}
	}
	return errs
}

// checkLabel returns an error if the label is invalid.
func checkLabel(key, value string) error {
	for _, fault := range slices.Concat(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)) {
		return errors.New(fault)
	}
	return nil
}

func findProvider(name string) *provider {
	for _, p := range providers {
		if p.name == name {
			return p
		}
	}
	return nil
}

func names() (names []string) {
	for _, p := range providers {
		names = append(names, p.name)
	}
	return names
}

// sources look up labels in the configuration and at its endpoint.
type sources struct {
	table  map[key]map[string]string
	server *jsonclient.Client // nil for none
}

type key struct{ provider, id string }

func newLabelers(config []byte) (labeler, error) {
	s, c := &sources{table: make(map[key]map[string]string)}, new(configuration)
	if err := admission.DecodeConfig(config, c, func() field.ErrorList { return s.load(c) }); err != nil {
		return nil, err
	}
	if c.Endpoint != nil {
		var err error
		if s.server, err = jsonclient.New(c.Endpoint, answerMax); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *sources) load(c *configuration) field.ErrorList {
	errs := admission.ValidateConfigType(c.APIVersion, configAPIVersion, c.Kind, configKind)
	if len(c.Volumes) == 0 && c.Endpoint == nil {
		errs = append(errs, field.Required(field.NewPath("volumes"), "want volumes or an endpoint, which have the labels of volumes"))
	}
	for i := range c.Volumes {
		v, at := &c.Volumes[i], field.NewPath("volumes").Index(i)
		errs = append(errs, v.validate(at)...)
		k := key{v.Provider, v.ID}
		if s.table[k] != nil {
			errs = append(errs, field.Duplicate(at.Child("id"), v.ID))
		}
		s.table[k] = v.Labels
	}
	if c.Endpoint != nil {
		errs = append(errs, c.Endpoint.Validate(field.NewPath("endpoint"))...)
	}
	return errs
}

func (s *sources) labels(ctx context.Context, d disk) (map[string]string, error) {
	if labels, ok := s.table[key{d.provider.name, d.id}]; ok {
		return labels, nil
	}
	if s.server == nil {
		return nil, errUnknown
	}
	var answer struct {
		Labels map[string]string `json:"labels"`
	}
	query := url.Values{"provider": {d.provider.name}, "id": {d.id}}
	if d.zone != "" {
		query.Set("zone", d.zone)
	}
	err := s.server.Get(ctx, "", query, &answer)
	if errors.Is(err, jsonclient.ErrNotFound) {
		return nil, errUnknown
	}
	if err != nil {
		return nil, err
	}
	for _, k := range slices.Sorted(maps.Keys(answer.Labels)) {
		if err := checkLabel(k, answer.Labels[k]); err != nil {
			return nil, &labelError{k, answer.Labels[k], err}
		}
	}
	return answer.Labels, nil
}

// labelError says that the endpoint returned an invalid label.
type labelError struct {
	key, value string
	err        error
}

func (e *labelError) Error() string {
	return "the endpoint gave label " + e.key + "=" + e.value + ": " + e.err.Error()
}

func (e *labelError) Unwrap() error { return e.err }
