package review

import (
	"bytes"
	"cmp"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"

	"github.com/fastadmit/fastadmit/internal/discovery"
	"github.com/fastadmit/fastadmit/internal/offline/manifest"
)

// A Twice is an object that is given twice, with different contents. One of them counts for the review of all objects, as the cluster
// has one of them.
type Twice struct {
	First, Second manifest.Source
	Kind, Name    string
	What          string // what differs
}

func (t *Twice) String() string {
	return fmt.Sprintf("%s %q is also in %s with other %s, and one of them counts for all objects; review them one after the other",
		t.Kind, t.Name, t.First, t.What)
}

// GivenTwice returns the objects that are given twice, of those that decide about other objects: Namespaces with objects,
// CustomResourceDefinitions, and those of kinds that policies read. namespace is that of objects that name none.
func GivenTwice(items []manifest.Item, namespace string, reads func(kind schema.GroupVersionKind) bool) (all []Twice) {
	type key struct {
		kind            schema.GroupKind
		namespace, name string
	}
	isUsed := make(map[string]bool) // namespaces with objects
	for i := range items {
		isUsed[cmp.Or(items[i].Metadata.Namespace, namespace)] = true
	}
	first := make(map[key]*manifest.Item)
	said := make(map[key]bool)
	for i := range items {
		item := &items[i]
		gvk := item.GroupVersionKind()
		isNamespace := gvk == schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}
		if item.Fault != nil || isNamespace && !isUsed[item.Metadata.Name] || !isNamespace && !discovery.IsCRD(gvk) && !reads(gvk) {
			continue
		}
		k := key{gvk.GroupKind(), cmp.Or(item.Metadata.Namespace, namespace), item.Metadata.Name}
		if first[k] == nil {
			first[k] = item
			continue
		}
		if what := differing(first[k], item, isNamespace); what != "" && !said[k] {
			said[k] = true
			all = append(all, Twice{first[k].Source, item.Source, gvk.Kind, item.Metadata.Name, what})
		}
	}
	return all
}

// differing says what differs, "" if nothing that counts does.
func differing(a, b *manifest.Item, isNamespace bool) string {
	if !isNamespace {
		if bytes.Equal(a.JSON, b.JSON) {
			return ""
		}
		return "contents"
	}
	type head struct {
		Metadata struct {
			Labels      map[string]any `json:"labels"`
			Annotations map[string]any `json:"annotations"`
		} `json:"metadata"`
	}
	var one, other head
	if kjson.UnmarshalCaseSensitivePreserveInts(a.JSON, &one) != nil || kjson.UnmarshalCaseSensitivePreserveInts(b.JSON, &other) != nil ||
		reflect.DeepEqual(one, other) {
		return ""
	}
	return "labels or annotations"
}
