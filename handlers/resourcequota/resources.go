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

// The functions on resource lists do as those of k8s.io/apiserver
// pkg/quota/v1/resources.go, and make new lists as they do: which operand a sum
// begins with says in which format it is shown.

// readResources reads a list of resources, names and quantities as copies.
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

// readQuantity reads a quantity. It is made of a copy, because a Quantity keeps the
// text that it was parsed from.
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

// increase returns what of a resource a has more than b.
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

// mask returns those of the resources that are in names, too.
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
	kept := make(corev1.ResourceList)
	for name, quantity := range resources {
		if !quantity.IsZero() {
			kept[name] = quantity
		}
	}
	return kept
}

// negative returns the names of the resources that are below zero.
func negative(resources corev1.ResourceList) (names []corev1.ResourceName) {
	for name, quantity := range resources {
		if quantity.Sign() < 0 {
			names = append(names, name)
		}
	}
	return names
}

// exceeding returns the names of the resources of which used has more than
// limit.
func exceeding(used, limit corev1.ResourceList) (names []corev1.ResourceName) {
	for name, quantity := range used {
		if most, ok := limit[name]; ok && quantity.Cmp(most) > 0 {
			names = append(names, name)
		}
	}
	return names
}

// show writes resources as messages have them.
func show(resources corev1.ResourceList) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(resources)) {
		quantity := resources[name]
		parts = append(parts, string(name)+"="+quantity.String())
	}
	return strings.Join(parts, ",")
}

// showNames writes names as messages have them.
func showNames(names []corev1.ResourceName) string {
	var text []string
	for _, name := range slices.Sorted(slices.Values(names)) {
		text = append(text, string(name))
	}
	return strings.Join(text, ",")
}
