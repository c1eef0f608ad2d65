package policies

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/fastadmit/fastadmit/internal/discovery"
	"github.com/fastadmit/fastadmit/internal/offline/manifest"
	engine "github.com/fastadmit/fastadmit/internal/policy"
	"github.com/fastadmit/fastadmit/internal/policy/schemas"
)

// A Note is a sentence about a document.
type Note struct {
	manifest.Source
	Text string
}

func (n *Note) String() string {
	if n.File == "" {
		return n.Text
	}
	return fmt.Sprintf("%s: %s", n.Source, n.Text)
}

// note returns a note about a field of a document.
func (d *document) note(positions *manifest.Positions, field, message string) Note {
	at := d.item.Source
	at.Line = positions.LineOf(&d.item.Object, field)
	return Note{at, fmt.Sprintf("%s: %s: %s", d.name(), field, message)}
}

// checked returns the policies whose types are checked: ValidatingAdmissionPolicies that somebody wrote. A translation reads
// what the other engine's policy reads, and its writer does not see its expressions.
func (s *Set) checked() (all []*document) {
	for i := range s.documents {
		d := &s.documents[i]
		if s.applied && d.kind.policy == engine.ValidatingKind.Name && !d.isBinding() && d.origin.object == nil && !s.file(d).Functions {
			all = append(all, d)
		}
	}
	return all
}

// FieldNotes returns a note for each name in the rules of policies that Kubernetes does not have, for each binding that lacks a
// parameter, and for each error that types show in the expressions of ValidatingAdmissionPolicies. The types are those of the built-in kinds, and of the
// CustomResourceDefinitions among the items of UseParams. Before Apply, types are not checked: the plugin has not
// compiled the expressions.
func (s *Set) FieldNotes(ctx context.Context) (notes []Note) {
	if len(s.documents) == 0 {
		return nil
	}
	var positions manifest.Positions
	builtIn, custom := discovery.BuiltIn(), newCustomGroups(s.definitions)
	for i := range s.documents {
		notes = append(notes, s.documents[i].ruleNotes(&positions, builtIn, custom)...)
	}
	notes = append(notes, s.paramNotes(&positions)...)
	checked := s.checked()
	if len(checked) == 0 {
		return notes
	}
	types := engine.NewTypes(schemas.NewGiven(s.table, s.definitions))
	for _, d := range checked {
		policy := new(admissionregistrationv1.ValidatingAdmissionPolicy)
		if decode(d.text, policy) != nil {
			continue // the plugin reports it
		}
		warnings, err := types.Check(ctx, policy)
		if err != nil {
			notes = append(notes, Note{d.item.Source, fmt.Sprintf("%s: its types are not checked: %v", d.name(), err)})
		}
		for _, w := range warnings {
			notes = append(notes, d.note(&positions, w.Field, w.Message))
		}
	}
	return notes
}

// AllFieldNotes collects the FieldNotes of many sets, each once, and those on policies without a binding. Several goroutines may use it at the same time.
type AllFieldNotes struct {
	mu    sync.Mutex
	known map[[sha256.Size]byte]bool // the policies and CustomResourceDefinitions of a set
	notes []Note
}

// Add adds the notes of a set. It takes no time if a set with the same policies and CustomResourceDefinitions was added
// before.
func (t *AllFieldNotes) Add(ctx context.Context, s *Set) {
	hash := sha256.New()
	for i := range s.documents {
		d := &s.documents[i]
		fmt.Fprintf(hash, "%s %d %s\n", d.item.Source, len(d.text), d.text)
	}
	for _, definition := range s.definitions {
		fmt.Fprintf(hash, "%d %s\n", len(definition), definition)
	}
	key := [sha256.Size]byte(hash.Sum(nil))
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.known[key] {
		return
	}
	if t.known == nil {
		t.known = make(map[[sha256.Size]byte]bool)
	}
	t.known[key] = true
	notes := s.FieldNotes(ctx)
	for _, d := range s.unbound() {
		if note, ok := s.noteUnbound(d); ok {
			notes = append(notes, note)
		}
	}
	for _, note := range notes {
		if !slices.Contains(t.notes, note) {
			t.notes = append(t.notes, note)
		}
	}
}

// Sorted returns the notes in the order of files and lines.
func (t *AllFieldNotes) Sorted() []Note {
	t.mu.Lock()
	defer t.mu.Unlock()
	slices.SortStableFunc(t.notes, func(a, b Note) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Text, b.Text))
	})
	return t.notes
}
