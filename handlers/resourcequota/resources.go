package resourcequota

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/quantity"
)

// The functions on resource lists return the same lists as those of k8s.io/apiserver
// pkg/quota/v1/resources.go. Like these, they do not change their arguments. The first
// operand of a sum determines its format.

// readResources reads a list of resources. Names and quantities are copies.
func readResources(list codec.Value) (corev1.ResourceList, error) {
	if list.Kind() != codec.KindObject {
		return nil, nil
	}
	resources := make(corev1.ResourceList)
	for name, value := range list.Members() {
		quantity, err := readQuantity(value)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		resources[corev1.ResourceName(strings.Clone(name))] = quantity
	}
	return resources, nil
}

// readQuantity parses a copy of the text, because a Quantity refers to it.
func readQuantity(value codec.Value) (resource.Quantity, error) {
	if err := quantity.Check(value); err != nil {
		return resource.Quantity{}, err
	}
	parsed, err := resource.ParseQuantity(strings.Clone(value.Scalar()))
	if err != nil {
		return parsed, fmt.Errorf("got %s, want a quantity: %w", value.JSON(), err)
	}
	return parsed, nil
}

func count(n int64) resource.Quantity { return *resource.NewQuantity(n, resource.DecimalSI) }

func add(a, b corev1.ResourceList) corev1.ResourceList {
	sum := make(corev1.ResourceList, len(a)+len(b))
	for name, quantity := range a {
		quantity = quantity.DeepCopy()
		if other, ok := b[name]; ok {
			quantity.Add(other)
		}
		sum[name] = quantity
	}
	for name, quantity := range b {
		if _, ok := sum[name]; !ok {
			sum[name] = quantity.DeepCopy()
		}
	}
	return sum
}

// increase returns by how much a exceeds b, for each resource.
func increase(a, b corev1.ResourceList) corev1.ResourceList {
	more := make(corev1.ResourceList)
	for name, quantity := range a {
		quantity = quantity.DeepCopy()
		if other, ok := b[name]; ok {
			quantity.Sub(other)
		}
		if quantity.Sign() > 0 {
			more[name] = quantity
		}
	}
	return more
}

// mask returns the resources whose names the function matches.
func mask(resources corev1.ResourceList, in func(corev1.ResourceName) bool) corev1.ResourceList {
	masked := make(corev1.ResourceList)
	for name, quantity := range resources {
		if in(name) {
			masked[name] = quantity
		}
	}
	return masked
}

func withoutZeros(resources corev1.ResourceList) corev1.ResourceList {
	nonzero := make(corev1.ResourceList)
	for name, quantity := range resources {
		if !quantity.IsZero() {
			nonzero[name] = quantity
		}
	}
	return nonzero
}

// negative returns the names of the resources with an amount below zero.
func negative(resources corev1.ResourceList) (names []corev1.ResourceName) {
	for name, quantity := range resources {
		if quantity.Sign() < 0 {
			names = append(names, name)
		}
	}
	return names
}

// exceeding returns the names of the resources with more in used than in limit.
func exceeding(used, limit corev1.ResourceList) (names []corev1.ResourceName) {
	for name, quantity := range used {
		if most, ok := limit[name]; ok && quantity.Cmp(most) > 0 {
			names = append(names, name)
		}
	}
	return names
}

// show formats resources as upstream's messages do.
func show(resources corev1.ResourceList) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(resources)) {
		quantity := resources[name]
		parts = append(parts, string(name)+"="+quantity.String())
	}
	return strings.Join(parts, ",")
}

// showNames formats names as upstream's messages do.
func showNames(names []corev1.ResourceName) string {
	var text []string
	for _, name := range slices.Sorted(slices.Values(names)) {
		text = append(text, string(name))
	}
	return strings.Join(text, ",")
}
