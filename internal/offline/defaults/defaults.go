// Package defaults sets the defaults that kube-apiserver sets in objects, without an API server.
// Policies and other admission plugins see objects with them.
//
// kube-apiserver decodes an object into the Go type of its kind, sets defaults in it, and encodes it for
// plugins. Apply does the same: fields that the type does not have, nulls and most empty values vanish, and
// structs that are always encoded appear, such as resources of a container. Then it applies the rules of
// the kind. A rule names a field, its default, and the conditions. Each list of rules names the
// upstream function that it follows, in k8s.io/kubernetes pkg/apis.
package defaults

import (
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"

	"github.com/fastadmit/fastadmit/admission"
)

// Defaults are the defaults of a release of Kubernetes, and of custom resources. Several goroutines
// may use them at the same time, but not while Define is called.
type Defaults struct {
	release admission.Version
	custom  map[schema.GroupVersionKind]*customKind

	workShared atomic.Int64 // what is left of the constant
	spent      rulesSpent
}

// New returns the defaults that kube-apiserver of a release sets.
func New(release admission.Version) *Defaults {
	d := &Defaults{release: release, custom: make(map[schema.GroupVersionKind]*customKind)}
	d.workShared.Store(workShared)
	return d
}

// kind is a kind of Kubernetes.
type kind struct {
	// recode decodes an object into the type of the kind and encodes it. It is nil if the type is not linked.
	recode func(text []byte) (recoded []byte, unknown []UnknownField, err error)
	rules  []rule
}

// decode decodes JSON as kube-apiserver does.
func decode(text []byte, into any) error { return kjson.UnmarshalCaseSensitivePreserveInts(text, into) }

// Apply returns the JSON of an object with its defaults. The text of a kind without defaults is returned
// as it is. kube-apiserver refuses an object that is not of the type of its kind; in such an
// object, Apply sets the defaults that the rules find a place for. The error says that the
// defaults of a CustomResourceDefinition are too large.
func (d *Defaults) Apply(gvk schema.GroupVersionKind, text []byte) ([]byte, error) {
	if definition := d.custom[gvk]; definition != nil {
		return definition.structure().apply(text)
	}
	k, known := kinds()[gvk]
	if !known {
		return text, nil
	}
	if k.recode != nil {
		if recoded, _, err := k.recode(text); err == nil {
			text = recoded
		}
	}
	if len(k.rules) == 0 {
		return text, nil
	}
	var object map[string]any
	if err := decode(text, &object); err != nil || object == nil {
		return text, nil // what is wrong with it is said where it is read
	}
	for i := range k.rules {
		k.rules[i].apply(object, k.rules[i].at, d.release.Minor())
	}
	return encode(object)
}

func encode(object map[string]any) ([]byte, error) {
	text, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("cannot encode the object with its defaults: %w", err)
	}
	return text, nil
}

// kinds returns the kinds that have rules or a type.
var kinds = sync.OnceValue(func() map[schema.GroupVersionKind]kind {
	all := make(map[schema.GroupVersionKind]kind)
	for _, group := range [...]map[string]kind{coreKinds(), workloadKinds(), accessKinds(), clusterKinds()} {
		for name, k := range group {
			all[parse(name)] = k
		}
	}
	return all
})
