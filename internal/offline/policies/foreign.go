package policies

import (
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fastadmit/fastadmit/internal/discovery"
	"github.com/fastadmit/fastadmit/internal/offline/manifest"
	"github.com/fastadmit/fastadmit/internal/policy/translate"
)

// A Translation has Kubernetes' policies and bindings in place of the policies of other engines.
type Translation struct {
	Policies []*translate.Policy
	Items    []manifest.Item // the policies and their bindings
	Errors   []error         // about parts without a translation, with file and line
	Notes    []string        // about translations that differ from their documents

	origins []origin // of Items
}

// An origin is the document from which an item is translated.
type origin struct {
	object *manifest.Object
	policy *translate.Policy
}

// Translate translates the policies of other engines among items, and ignores other items.
func Translate(items []manifest.Item, o translate.Options) (t Translation) {
	var sources []*manifest.Object
	var texts [][]byte
	for i := range items {
		if item := &items[i]; item.Fault == nil && translate.IsForeign(item.GroupVersionKind()) {
			sources, texts = append(sources, &item.Object), append(texts, item.JSON)
		}
	}
	if len(texts) == 0 {
		return t
	}
	result := translate.Translate(texts, o)
	t.Policies = result.Policies
	var positions manifest.Positions
	for _, problem := range result.Problems {
		object := sources[problem.Document]
		source := object.Source
		source.Line = positions.LineOf(object, problem.Field)
		err := fmt.Errorf("%s: %s %q: %w", source, object.Kind, object.Metadata.Name, problem)
		if problem.IsNote {
			t.Notes = append(t.Notes, err.Error())
		} else {
			t.Errors = append(t.Errors, err)
		}
	}
	for _, p := range result.Policies {
		objects, err := p.Objects()
		source := sources[p.Document]
		if err != nil {
			t.Errors = append(t.Errors, fmt.Errorf("%s: %w", source.Source, err))
			continue
		}
		for _, text := range objects {
			for _, item := range manifest.Parse(source.File, text) {
				item.Source = source.Source
				t.Items, t.origins = append(t.Items, item), append(t.origins, origin{source, p})
			}
		}
	}
	return t
}

// AddForeign translates the policies of other engines among items and adds the results. reads is true if they may read
// other objects: those that UseParams gets. AddForeign returns the number of documents, and errors about parts without a
// translation.
func (s *Set) AddForeign(items []manifest.Item, reads bool) (found int, errs []error) {
	for i := range items {
		if items[i].Fault == nil && translate.IsForeign(items[i].GroupVersionKind()) {
			found++
		}
	}
	t := Translate(items, translate.Options{Now: time.Now(), Functions: true, Reads: reads})
	s.notes = append(s.notes, t.Notes...)
	s.gatekeeper = append(append(s.gatekeeper, templateNotes(items)...), kindNotes(items)...)
	s.AddTranslation(&t)
	return found, t.Errors
}

// templateNotes notes ConstraintTemplates without a Constraint: they do nothing.
func templateNotes(items []manifest.Item) (notes []Note) {
	used := make(map[string]bool)
	for i := range items {
		if items[i].Fault == nil && items[i].GroupVersionKind().Group == constraintsGroup {
			used[items[i].Kind] = true
		}
	}
	for i := range items {
		var template struct {
			Spec struct {
				CRD struct {
					Spec struct {
						Names struct {
							Kind string `json:"kind"`
						} `json:"names"`
					} `json:"spec"`
				} `json:"crd"`
			} `json:"spec"`
		}
		item := &items[i]
		if item.Fault != nil || item.Kind != "ConstraintTemplate" || decode(item.JSON, &template) != nil {
			continue
		}
		if kind := template.Spec.CRD.Spec.Names.Kind; !used[kind] {
			notes = append(notes, Note{item.Source, fmt.Sprintf("ConstraintTemplate %q has no Constraint of the kind %s, so it is not evaluated: "+
				"give one together with it", item.Metadata.Name, kind)})
		}
	}
	return notes
}

// kindNotes notes Constraints for kinds that are misspelt.
func kindNotes(items []manifest.Item) (notes []Note) {
	var table *discovery.Table
	for i := range items {
		item := &items[i]
		var constraint struct {
			Spec struct {
				Match struct {
					Kinds []struct {
						APIGroups []string `json:"apiGroups"`
						Kinds     []string `json:"kinds"`
					} `json:"kinds"`
				} `json:"match"`
			} `json:"spec"`
		}
		if item.Fault != nil || item.GroupVersionKind().Group != constraintsGroup || decode(item.JSON, &constraint) != nil {
			continue
		}
		if table == nil {
			table = discovery.NewTable(nil)
		}
		for _, entry := range constraint.Spec.Match.Kinds {
			if len(entry.APIGroups) != 1 { // another group may have the kind
				continue
			}
			for _, kind := range entry.Kinds {
				_, err := table.Find(schema.GroupVersionKind{Group: entry.APIGroups[0], Version: "v1", Kind: kind})
				if unknown, ok := errors.AsType[*discovery.UnknownError](err); ok && unknown.IsMisspelt() {
					notes = append(notes, Note{item.Source, fmt.Sprintf("%s %q: spec.match.kinds: %v", item.Kind, item.Metadata.Name, err)})
				}
			}
		}
	}
	return notes
}

const constraintsGroup = "constraints.gatekeeper.sh"

// AddTranslation adds the policies of a translation.
func (s *Set) AddTranslation(t *Translation) {
	before := len(s.documents)
	s.Add(t.Items)
	for i := range s.documents[before:] {
		s.documents[before+i].origin = t.origins[i]
	}
}
