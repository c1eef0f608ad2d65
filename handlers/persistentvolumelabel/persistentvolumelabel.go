// Package persistentvolumelabel is the admission plugin PersistentVolumeLabel.
//
// It labels new PersistentVolumes with the zone and region of their disk, and restricts them
// to nodes there. A pod in another zone than its disk never starts, and authors of volumes
// forget the labels.
//
// Behaviour: k8s.io/kubernetes plugin/pkg/admission/storage/persistentvolume/label. Each
// provider behaves as in the last release that had it: v1.30.14 for GCE, v1.29.15 for Azure
// and vSphere, v1.26.15 for AWS.
package persistentvolumelabel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
)

const (
	// provisionedBy is the annotation of dynamically provisioned volumes
	// (k8s.io/component-helpers storage/volume AnnDynamicallyProvisioned).
	provisionedBy = "pv.kubernetes.io/provisioned-by"
	// placeholder is the name of a disk that is still being created (k8s.io/cloud-provider
	// volume ProvisionedVolumeName).
	placeholder = "placeholder-for-provisioning"
	// zoneDelimiter separates the zones of a disk in several zones (k8s.io/cloud-provider
	// volume LabelMultiZoneDelimiter).
	zoneDelimiter = "__"
	// idMax is the maximum length of the name of a disk, in bytes. The longest is a resource
	// ID of Azure: less than 1,000 with the limits of its parts (subscription 36, resource
	// group 90, name 80).
	idMax = 1024
	// labelMax is the maximum length of a label in the terms of the affinity, in bytes. It
	// is far above kube-apiserver's limit of 63, so that decisions are the same as in-tree.
	labelMax = 1024
	// termsCheck is the number of terms after which the context is checked.
	termsCheck = 1024
)

// errUnknown says that the labels of the disk are not known.
var errUnknown = errors.New("the volume is not known")

// A disk is the disk of a PersistentVolume.
type disk struct {
	provider *provider
	id       string // the name in the configuration and at the endpoint
	name     string // the name in upstream's messages
	zone     string // the zone to search, from the volume's labels; empty for all
}

// A labeler returns the labels of disks. The error is errUnknown if there is no such disk;
// any other error means that the labels cannot be determined now.
type labeler interface {
	labels(ctx context.Context, d disk) (map[string]string, error)
}

// A provider is a cloud with disks for PersistentVolumes.
type provider struct {
	name   string // the name of upstream's cloud provider
	source string // the field of a PersistentVolume's spec
	id     string // the field of the source with the disk's identifier
	called string // the field of the source in upstream's messages
	title  string // the word for a disk in upstream's messages
	// provisions says that disks with the placeholder's name are ignored.
	provisions bool
	// zonal says that disks in different zones may have the same name. The volume's zone
	// label, if set, selects one (k8s.io/legacy-cloud-providers gce GetLabelsForVolume).
	zonal bool
}

// providers are in the order of upstream's checks.
var providers = []*provider{
	{"aws", "awsElasticBlockStore", "volumeID", "volumeID", "AWS EBS volume", true, false},
	{"gce", "gcePersistentDisk", "pdName", "pdName", "GCE PD volume", true, true},
	{"azure", "azureDisk", "diskURI", "diskName", "AzureDisk volume", true, false},
	{"vsphere", "vsphereVolume", "volumePath", "volumePath", "vSphere Volume", false, false},
}

// Plugin returns the plugin, for the table of package handlers.
func Plugin() admission.Plugin {
	return admission.Plugin{
		Name:           "PersistentVolumeLabel",
		Summary:        "labels volumes with the zone and region of their disk, and restricts them to nodes there",
		Rules:          []admission.Rule{admission.NewRule("", "v1", "persistentvolumes", codec.Create)},
		Mutates:        true,
		RequiresConfig: true,
		Calls:          true,
		LastRelease:    "1.30",
		New: func(setup admission.Setup) (admission.Handler, error) {
			known, err := newLabelers(setup.Config)
			if err != nil {
				return admission.Handler{}, err
			}
			return admission.Handler{Admit: (&plugin{known}).admit}, nil
		},
	}
}

type plugin struct{ known labeler }

func (p *plugin) admit(ctx context.Context, review *codec.Review) admission.Result {
	if review.Object.Root().Kind() != codec.KindObject {
		return admission.Allowed()
	}
	labels, ok := provisioned(review)
	if !ok {
		var result admission.Result
		if labels, result = p.ask(ctx, review); len(labels) == 0 {
			return result
		}
	}
	return label(ctx, review, labels)
}

// provisioned returns the labels of a dynamically provisioned volume, which are trusted.
func provisioned(review *codec.Review) (labels map[string]string, ok bool) {
	metadata := review.Object.Get("metadata")
	if !metadata.Get("annotations", provisionedBy).Exists() {
		return nil, false
	}
	has := metadata.Get("labels")
	for _, keys := range [][2]string{
		{corev1.LabelTopologyZone, corev1.LabelTopologyRegion}, {corev1.LabelFailureDomainBetaZone, corev1.LabelFailureDomainBetaRegion},
	} {
		zone, region := has.Get(keys[0]), has.Get(keys[1])
		if zone.Exists() && region.Exists() {
			return map[string]string{keys[0]: zone.String(), keys[1]: region.String()}, true
		}
	}
	return nil, false
}

// ask returns the labels of the volume's disk. If there are none, the result is the answer.
func (p *plugin) ask(ctx context.Context, review *codec.Review) (map[string]string, admission.Result) {
	d, ok := diskOf(review)
	if !ok {
		return nil, admission.Allowed()
	}
	labels, err := map[string]string(nil), errUnknown
	if len(d.id) <= idMax && len(d.zone) <= idMax {
		labels, err = p.known.labels(ctx, d)
	}
	switch {
	case errors.Is(err, errUnknown):
		return nil, admission.Denied(admission.Forbidden(review,
			fmt.Errorf("error querying %s %.*s: %w", d.provider.title, idMax, d.name, err)))
	case err != nil:
		return nil, admission.Errored(fmt.Errorf("cannot tell the labels of %s %s: %w", d.provider.title, d.id, err))
	}
	return labels, admission.Allowed()
}

// diskOf returns the volume's disk, if its provider is known and the disk already exists.
func diskOf(review *codec.Review) (disk, bool) {
	spec := review.Object.Get("spec")
	for _, p := range providers {
		source := spec.Get(p.source)
		if source.Kind() != codec.KindObject {
			continue
		}
		d := disk{provider: p, id: source.Get(p.id).String(), name: source.Get(p.called).String()}
		if p.zonal {
			labels := review.Object.Get("metadata", "labels")
			d.zone = cmp.Or(labels.Get(corev1.LabelTopologyZone).String(), labels.Get(corev1.LabelFailureDomainBetaZone).String())
		}
		return d, !p.provisions || d.name != placeholder
	}
	return disk{}, false
}

// label replaces the volume's labels. It also adds them to each term of the node affinity,
// unless a term already has one of the keys.
func label(ctx context.Context, review *codec.Review, labels map[string]string) admission.Result {
	keys := slices.Sorted(maps.Keys(labels))
	expressions := make([]string, len(keys))
	for i, key := range keys {
		value := labels[key]
		if len(value) > labelMax {
			return admission.Allowed() // the user set all labels, and kube-apiserver rejects such a label
		}
		values := []string{value}
		if key == corev1.LabelTopologyZone || key == corev1.LabelFailureDomainBetaZone {
			var ok bool
			if values, ok = zonesOf(value); !ok {
				return admission.Denied(admission.Forbidden(review,
					fmt.Errorf("failed to convert label string for Zone: %s to a Set", value)))
			}
		}
		expressions[i] = requirement(key, values)
	}
	for _, key := range keys {
		review.Object.SetString(labels[key], "metadata", "labels", key)
	}
	terms := review.Object.Get("spec", "nodeAffinity", "required", "nodeSelectorTerms")
	if terms.Len() == 0 {
		review.Object.Set(`[{"matchExpressions":[`+strings.Join(expressions, ",")+`]}]`, "spec", "nodeAffinity", "required",
			"nodeSelectorTerms")
		return admission.Allowed()
	}
	if has, err := hasKeys(ctx, terms, labels); err != nil || has {
		return admission.Result{Err: err}
	}
	for i, term := range terms.Elements() {
		if i%termsCheck == termsCheck-1 && ctx.Err() != nil {
			return admission.Errored(ctx.Err())
		}
		for _, expression := range expressions {
			term.Append(expression, "matchExpressions")
		}
	}
	return admission.Allowed()
}

// hasKeys reports whether a term of a node affinity uses one of the labels.
func hasKeys(ctx context.Context, terms codec.Value, labels map[string]string) (bool, error) {
	n := 0
	for _, term := range terms.Elements() {
		for _, expression := range term.Get("matchExpressions").Elements() {
			if _, ok := labels[expression.Get("key").String()]; ok {
				return true, nil
			}
			n++
			if n%termsCheck == 0 && ctx.Err() != nil {
				return false, ctx.Err()
			}
		}
	}
	return false, nil
}

// zonesOf returns the sorted zones in the value of a label (k8s.io/cloud-provider
// volume/helpers LabelZonesToSet).
func zonesOf(value string) (zones []string, ok bool) {
	for zone := range strings.SplitSeq(value, zoneDelimiter) {
		zone = strings.TrimSpace(zone)
		if zone == "" {
			return nil, false
		}
		zones = append(zones, zone)
	}
	slices.Sort(zones)
	return slices.Compact(zones), true
}

// requirement returns a NodeSelectorRequirement.
func requirement(key string, values []string) string {
	json := append(codec.AppendString([]byte(`{"key":`), key), `,"operator":"In","values":[`...)
	for i, value := range values {
		if i > 0 {
			json = append(json, ',')
		}
		json = codec.AppendString(json, value)
	}
	return string(append(json, "]}"...))
}
