package policies

import (
	"fmt"
	"time"

	"github.com/fastadmit/fastadmit/internal/offline/manifest"
	"github.com/fastadmit/fastadmit/internal/policy/translate"
)

// A Translation has Kubernetes' policies and bindings in place of the policies of other engines.
type Translation struct {
	Policies []*translate.Policy
	Items    []manifest.Item // the policies and their bindings
	Errors   []error         // about parts without a translation, with file and line
	Notes    []string        // about translations that differ from their documents
	Idle     []Note          // on documents that select nothing
	LeftOut  []Note          // one for each document with errors, which has no Policies

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
	var last *manifest.Object // of LeftOut
	for _, problem := range result.Problems {
		object := sources[problem.Document]
		source := object.Source
		source.Line = positions.LineOf(object, problem.Field)
		err := fmt.Errorf("%s: %s %q: %w", source, object.Kind, object.Metadata.Name, problem)
		switch {
		case problem.IsIdle:
			colon := ":"
			if problem.Field == "" { // the text is the rest of a sentence about the document
				colon = ""
			}
			t.Idle = append(t.Idle, Note{source, fmt.Sprintf("%s %q%s %v", object.Kind, object.Metadata.Name, colon, problem)})
		case problem.IsNote:
			t.Notes = append(t.Notes, err.Error())
		default:
			t.Errors = append(t.Errors, err)
			if object != last {
				t.LeftOut = append(t.LeftOut, Note{source, fmt.Sprintf("%s %q is left out: %v", object.Kind, object.Metadata.Name, problem)})
			}
			last = object
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
// translation; if skip is true, they are notes instead.
func (s *Set) AddForeign(items []manifest.Item, reads, skip bool) (found int, errs []error) {
	for i := range items {
		if items[i].Fault == nil && translate.IsForeign(items[i].GroupVersionKind()) {
			found++
		}
	}
	t := Translate(items, translate.Options{Now: time.Now(), Functions: true, Reads: reads})
	s.notes = append(s.notes, t.Notes...)
	s.idle = append(s.idle, t.Idle...)
	s.AddTranslation(&t)
	if skip {
		s.idle = append(s.idle, t.LeftOut...)
		return found, nil
	}
	return found, t.Errors
}

// AddTranslation adds the policies of a translation.
func (s *Set) AddTranslation(t *Translation) {
	before := len(s.documents)
	s.Add(t.Items)
	for i := range s.documents[before:] {
		s.documents[before+i].origin, s.documents[before+i].isOwn = t.origins[i], false
	}
}
