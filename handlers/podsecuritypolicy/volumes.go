package podsecuritypolicy

import (
	"fmt"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// newer are the types of volumes that were added after PodSecurityPolicy ended. Policies
// cannot name them, so only those that allow all volumes allow these.
var newer = sets.New("image")

// typeOf returns the type of a volume: the name of its field.
func typeOf(v *corev1.VolumeSource) string {
	sources := reflect.ValueOf(v).Elem()
	for i := range sources.NumField() {
		if sources.Field(i).IsNil() {
			continue
		}
		name, _, _ := strings.Cut(sources.Type().Field(i).Tag.Get("json"), ",")
		if name == "cephfs" {
			return "cephFS"
		}
		return name
	}
	return "unknown" // a type that this version of k8s.io/api does not know
}

func (c *candidate) checkVolumes(p *PodSecurityPolicy, f *faultsOf) {
	all := p.rules.volumes.Has(anything)
	for i := range c.pod.Spec.Volumes {
		if f.full() {
			return
		}
		v := &c.pod.Spec.Volumes[i]
		path := field.NewPath("spec", "volumes").Index(i)
		kind := typeOf(&v.VolumeSource)
		if !all && !p.allows(kind, v) {
			f.add(field.Invalid(path, kind, fmt.Sprintf("%s volumes are not allowed to be used", kind)))
			continue
		}
		switch {
		case v.HostPath != nil:
			c.checkHostPath(p, v, path, f)
		case v.FlexVolume != nil:
			if drivers := p.rules.flexVolumes; drivers.Len() > 0 && !drivers.Has(v.FlexVolume.Driver) {
				f.add(field.Invalid(path.Child("driver"), v.FlexVolume.Driver, "Flexvolume driver is not allowed to be used"))
			}
		case v.CSI != nil:
			if drivers := p.rules.csiDrivers; drivers.Len() > 0 && !drivers.Has(v.CSI.Driver) {
				f.add(field.Invalid(path.Child("csi", "driver"), v.CSI.Driver, "Inline CSI driver is not allowed to be used"))
			}
		}
	}
}

// allows reports whether the policy allows the type of a volume. A policy that allows
// secrets also allows the projected volume with the service account's token.
func (p *PodSecurityPolicy) allows(kind string, v *corev1.Volume) bool {
	return p.rules.volumes.Has(kind) && !newer.Has(kind) ||
		v.Projected != nil && p.rules.volumes.Has("secret") && isOnlyToken(v.Projected)
}

func isOnlyToken(v *corev1.ProjectedVolumeSource) bool {
	for i := range v.Sources {
		s := &v.Sources[i]
		if s.ServiceAccountToken == nil && s.ConfigMap == nil && s.DownwardAPI == nil {
			return false
		}
		if t := s.ServiceAccountToken; t != nil && (t.Path != "token" || t.Audience != "") {
			return false
		}
		if s.ConfigMap != nil && s.ConfigMap.Name != "kube-root-ca.crt" {
			return false
		}
		if s.DownwardAPI == nil {
			continue
		}
		for _, d := range s.DownwardAPI.Items {
			if d.Path != "namespace" || d.FieldRef == nil || d.FieldRef.APIVersion != "v1" ||
				d.FieldRef.FieldPath != "metadata.namespace" {
				return false
			}
		}
	}
	return true
}

func (c *candidate) checkHostPath(p *PodSecurityPolicy, v *corev1.Volume, path *field.Path, f *faultsOf) {
	allowed, readOnly := allowsHostPath(p.Spec.AllowedHostPaths, v.HostPath.Path)
	if !allowed {
		f.add(field.Invalid(path.Child("hostPath", "pathPrefix"), v.HostPath.Path, "is not allowed to be used"))
		return
	}
	if !readOnly {
		return
	}
	for _, m := range c.writableMounts(v.Name) {
		if f.full() {
			return
		}
		f.add(field.Invalid(c.containers[m.container].path().Child("volumeMounts").Index(m.index).Child("readOnly"), false,
			"must be read-only"))
	}
}

func allowsHostPath(list []AllowedHostPath, path string) (allowed, readOnly bool) {
	if len(list) == 0 {
		return true, false
	}
	for _, a := range list {
		if !isBelow(path, a.PathPrefix) {
			continue
		}
		if !a.ReadOnly {
			return true, false
		}
		allowed = true
	}
	return allowed, true
}

// isBelow reports whether a path is prefix or below it.
func isBelow(path, prefix string) bool {
	rest, ok := strings.CutPrefix(strings.TrimSuffix(path, "/"), strings.TrimSuffix(prefix, "/"))
	return ok && (rest == "" || rest[0] == '/')
}
