package review

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"

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
// CustomResourceDefinitions, and those of the kinds that policies read. namespace is that of objects that name none.
func GivenTwice(items []manifest.Item, namespace string, read map[schema.GroupVersionKind]bool) (all []Twice) {
	type key struct {
		kind            schema.GroupKind
		namespace, name string
	}
	type given struct {
		source   manifest.Source
		contents []byte
		isSaid   bool
	}
	isUsed := make(map[string]bool) // namespaces with objects
	for i := range items {
		isUsed[cmp.Or(items[i].Metadata.Namespace, namespace)] = true
	}
	first := make(map[key]*given)
	for i := range items {
		item := &items[i]
		gvk := item.GroupVersionKind()
		contents, what := item.JSON, "contents"
		switch {
		case item.Fault != nil:
			continue
		case gvk == schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}:
			if !isUsed[item.Metadata.Name] {
				continue
			}
			contents, what = labelsOf(item), "labels or annotations"
		case !discovery.IsCRD(gvk) && !read[gvk]:
			continue
		}
		k := key{gvk.GroupKind(), cmp.Or(item.Metadata.Namespace, namespace), item.Metadata.Name}
		before := first[k]
		if before == nil {
			first[k] = &given{source: item.Source, contents: contents}
		} else if !before.isSaid && !bytes.Equal(before.contents, contents) {
			before.isSaid = true
			all = append(all, Twice{before.source, item.Source, gvk.Kind, item.Metadata.Name, what})
		}
	}
	return all
}

// labelsOf returns the labels and annotations of an object, in an order of their own.
func labelsOf(item *manifest.Item) []byte {
	var head struct {
		Metadata struct {
			Labels      map[string]any `json:"labels,omitempty"`
			Annotations map[string]any `json:"annotations,omitempty"`
		} `json:"metadata"`
	}
	_ = kjson.UnmarshalCaseSensitivePreserveInts(item.JSON, &head) // its review says what is wrong
	text, _ := json.Marshal(&head)                                 // it comes from JSON
	return text
}
