package limitranger

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/fastadmit/fastadmit/codec"
)

// annotation says on a pod which of its amounts are defaults.
const annotation = "kubernetes.io/limit-ranger"

// lists are the fields of a PodSpec whose containers get defaults, and what the
// annotation calls them.
var lists = [...]struct{ field, called string }{
	{"containers", "container"},
	{"initContainers", "init container"},
}

// parts are the fields of a container's resources, what the annotation calls
// them, and the defaults for them.
var parts = [...]struct {
	field, called string
	of            func(*corev1.LimitRangeItem) corev1.ResourceList
}{
	{"requests", "request", func(item *corev1.LimitRangeItem) corev1.ResourceList { return item.DefaultRequest }},
	{"limits", "limit", func(item *corev1.LimitRangeItem) corev1.ResourceList { return item.Default }},
}

// setDefaults gives the containers of a pod the defaults that they lack, and
// notes on the pod which they got.
func setDefaults(pod *codec.Object, items []corev1.LimitRangeItem) {
	if !slices.ContainsFunc(items, hasDefaults) {
		return
	}
	var note []byte
	for _, list := range lists {
		for _, container := range pod.Get("spec", list.field).Elements() {
			resources := container.Get("resources")
			for _, part := range parts {
				if !lacks(resources.Get(part.field), items, part.of) {
					continue // as nearly all are, once kube-apiserver's own plugin saw them
				}
				set := fill(container, items, part.of, "resources", part.field)
				slices.Sort(set)
				for j, resource := range set {
					note = append(append(note, separators[min(j, 1)]...), resource...)
				}
				note = append(append(append(note, ' '), part.called...), " for "...)
				note = append(append(append(note, list.called...), ' '), container.Get("name").String()...)
			}
		}
	}
	if note != nil {
		pod.SetString("LimitRanger plugin set: "+string(note[len(separators[0]):]), "metadata", "annotations", annotation)
	}
}

// separators stand before the first and each further resource of a sentence.
var separators = [...]string{"; ", ", "}

func hasDefaults(item corev1.LimitRangeItem) bool {
	return item.Type == corev1.LimitTypeContainer && len(item.Default)+len(item.DefaultRequest) > 0
}

// lacks reports whether there is a default that resources do not have. It
// allocates nothing.
func lacks(resources codec.Value, items []corev1.LimitRangeItem, of func(*corev1.LimitRangeItem) corev1.ResourceList) bool {
	for i := range items {
		if items[i].Type != corev1.LimitTypeContainer {
			continue
		}
		for resource := range of(&items[i]) {
			if !resources.Get(string(resource)).Exists() {
				return true
			}
		}
	}
	return false
}

// fill sets what the object at the path in a container lacks, and returns the names of the
// resources set. Of two defaults for a resource the last one counts.
func fill(container codec.Value, items []corev1.LimitRangeItem, of func(*corev1.LimitRangeItem) corev1.ResourceList, path ...string) (set []string) {
	at := append(slices.Clip(path), "")
	for i := len(items) - 1; i >= 0; i-- {
		if items[i].Type != corev1.LimitTypeContainer {
			continue
		}
		defaults, lacking := of(&items[i]), len(set)
		for resource := range defaults {
			if at[len(path)] = string(resource); !container.Get(at...).Exists() {
				set = append(set, string(resource))
			}
		}
		slices.Sort(set[lacking:]) // so that the patch is always the same
		for _, resource := range set[lacking:] {
			at[len(path)] = resource
			quantity := defaults[corev1.ResourceName(resource)]
			container.SetString(quantity.String(), at...)
		}
	}
	return set
}
