package limitranger

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/fastadmit/fastadmit/codec"
)

// annotation is the key of the annotation that says which amounts of a pod are defaults.
const annotation = "kubernetes.io/limit-ranger"

// lists are the fields of a PodSpec whose containers get defaults, with their names in the
// annotation.
var lists = [...]struct{ field, called string }{
	{"containers", "container"},
	{"initContainers", "init container"},
}

// parts are the fields of a container's resources, with their names in the annotation and
// their defaults.
var parts = [...]struct {
	field, called string
	of            func(*corev1.LimitRangeItem) corev1.ResourceList
}{
	{"requests", "request", func(item *corev1.LimitRangeItem) corev1.ResourceList { return item.DefaultRequest }},
	{"limits", "limit", func(item *corev1.LimitRangeItem) corev1.ResourceList { return item.Default }},
}

// setDefaults sets missing amounts of the containers of a pod to the defaults, and lists
// them in the annotation.
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
					continue // the usual case, if kube-apiserver's own plugin ran before
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

// separators are the texts before the first resource of a sentence, and before the others.
var separators = [...]string{"; ", ", "}

func hasDefaults(item corev1.LimitRangeItem) bool {
	return item.Type == corev1.LimitTypeContainer && len(item.Default)+len(item.DefaultRequest) > 0
}

// lacks reports whether there is a default for an amount that resources does not have. It
// does not allocate.
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

// fill sets missing amounts of the object at the path in a container to the defaults, and
// returns the names of these resources. If a resource has two defaults, the last one counts.
func fill(container codec.Value, items []corev1.LimitRangeItem, of func(*corev1.LimitRangeItem) corev1.ResourceList,
	path ...string) (set []string) {
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
		slices.Sort(set[lacking:]) // the order of the patch must not vary
		for _, resource := range set[lacking:] {
			at[len(path)] = resource
			quantity := defaults[corev1.ResourceName(resource)]
			container.SetString(quantity.String(), at...)
		}
	}
	return set
}
