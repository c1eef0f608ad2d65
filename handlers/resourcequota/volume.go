package resourcequota

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
)

// volumes is the evaluator of PersistentVolumeClaims (k8s.io/kubernetes
// pkg/quota/v1/evaluator/core/persistent_volume_claims.go).
type volumes struct{ version admission.Version }

// byClass is between the name of a StorageClass and a resource in the names of quotas.
const byClass = ".storageclass.storage.k8s.io/"

// volumeResources are counted for all claims, and also per StorageClass.
var volumeResources = []corev1.ResourceName{corev1.ResourcePersistentVolumeClaims, corev1.ResourceRequestsStorage}

var volumeCount = countOf("", "persistentvolumeclaims")

func (volumes) handles(review *codec.Review) bool {
	// For a status, upstream compares pointers to copies of allocatedResources, which always
	// differ.
	return review.SubResource() == "" || review.SubResource() == "status" && review.OldObject.Root().IsSet()
}

func (volumes) tracked(names []corev1.ResourceName) []corev1.ResourceName {
	return only(names, func(name corev1.ResourceName) bool {
		return name == volumeCount || slices.Contains(volumeResources, name) ||
			slices.ContainsFunc(volumeResources, func(r corev1.ResourceName) bool {
				return strings.HasSuffix(string(name), byClass+string(r))
			})
	})
}

func (e volumes) measure(_ context.Context, _ *codec.Review, object codec.Value) (item, error) {
	class := object.Get("metadata", "annotations", corev1.BetaStorageClassAnnotation)
	if !class.Exists() {
		class = object.Get("spec", "storageClassName")
	}
	prefix := corev1.ResourceName(class.String() + byClass) // a copy
	v := &volume{scoped: e.version.AtLeast(1, 34), used: corev1.ResourceList{volumeCount: count(1), corev1.ResourcePersistentVolumeClaims: count(1)}}
	if class.String() != "" {
		v.used[prefix+corev1.ResourcePersistentVolumeClaims] = count(1)
	}
	requests, err := readResources(object.Get("spec", "resources", "requests"))
	if err != nil {
		return nil, fmt.Errorf("spec.resources.requests: %w", err)
	}
	if size, ok := requests[corev1.ResourceStorage]; ok {
		size.RoundUp(0) // quotas count whole bytes
		allocated, err := readResources(object.Get("status", "allocatedResources"))
		if err != nil {
			return nil, fmt.Errorf("status.allocatedResources: %w", err)
		}
		if larger, ok := allocated[corev1.ResourceStorage]; ok && larger.Cmp(size) > 0 {
			larger.RoundUp(0)
			size = larger
		}
		v.used[corev1.ResourceRequestsStorage] = size
		if class.String() != "" {
			v.used[prefix+corev1.ResourceRequestsStorage] = size
		}
	}
	for _, path := range [...][]string{
		{"spec", "volumeAttributesClassName"},
		{"status", "currentVolumeAttributesClassName"},
		{"status", "modifyVolumeStatus", "targetVolumeAttributesClassName"},
	} {
		if name := object.Get(path...).String(); name != "" {
			v.attributes = append(v.attributes, strings.Clone(name))
		}
	}
	return v, nil
}

// A volume has the fields of a PersistentVolumeClaim that quotas depend on.
type volume struct {
	used       corev1.ResourceList
	scoped     bool     // scopes may select it: the gate VolumeAttributesClass is on since 1.34
	attributes []string // the current, former and future VolumeAttributesClasses
}

func (v *volume) usage() corev1.ResourceList { return v.used }

func (v *volume) matches(selector corev1.ScopedResourceSelectorRequirement) (bool, error) {
	if !v.scoped || selector.ScopeName != corev1.ResourceQuotaScopeVolumeAttributesClass {
		return false, nil
	}
	if selector.Operator == corev1.ScopeSelectorOpExists {
		return len(v.attributes) > 0, nil
	}
	return selects(selector, v.attributes...)
}

func (*volume) constraints([]corev1.ResourceName) error { return nil }
