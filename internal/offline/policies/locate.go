package policies

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/internal/offline/defaults"
	"github.com/fastadmit/fastadmit/internal/offline/manifest"
	"github.com/fastadmit/fastadmit/internal/strictyaml"
)

// Locate adds the file and line to those errors of admission.NewChain that are in documents
// of the set. It returns them first, joined with the other errors.
func (s *Set) Locate(err error) error {
	if err == nil {
		return nil
	}
	all := slices.Concat(s.documents, s.exceptions)
	byName := make(map[string]*document, len(all))
	for i := range slices.Backward(all) { // the first document with a name counts
		byName[all[i].item.String()] = &all[i]
	}
	var positions manifest.Positions
	var located []error
	var others func(err error) []error
	others = func(err error) (rest []error) {
		if parts := parts(err); parts != nil {
			for _, part := range parts {
				rest = append(rest, others(part)...)
			}
			return rest
		}
		if enable, ok := err.(*admission.EnableError); ok { //nolint:errorlint // the error itself, not one inside
			if inner := others(enable.Err); inner != nil {
				rest = []error{&admission.EnableError{
					Plugin: enable.Plugin, Err: utilerrors.NewAggregate(inner), Unconfigured: enable.Unconfigured,
				}}
			}
			return rest
		}
		if about, ok := errors.AsType[*admission.FileError](err); ok {
			if d := byName[about.File]; d != nil {
				for _, leaf := range leaves(about.Err) {
					located = append(located, d.locate(&positions, leaf))
				}
				return nil
			}
		}
		return []error{err}
	}
	rest := others(err)
	return errors.Join(append(located, rest...)...)
}

// parts returns the errors that an error joins, nil for one that joins none.
func parts(err error) []error {
	switch joined := err.(type) { //nolint:errorlint // the error itself, not one inside
	case interface{ Unwrap() []error }:
		return joined.Unwrap()
	case utilerrors.Aggregate:
		return joined.Errors()
	}
	return nil
}

// leaves returns the single errors in an error about a document.
func leaves(err error) (all []error) {
	if joined := parts(err); joined != nil {
		for _, part := range joined {
			all = append(all, leaves(part)...)
		}
		return all
	}
	if _, ok := err.(*field.Error); ok { //nolint:errorlint // the error itself, not one inside
		return []error{err}
	}
	if inner := errors.Unwrap(err); inner != nil {
		all = leaves(inner)
		if _, isField := errors.AsType[*field.Error](inner); len(all) > 1 || isField {
			return all
		}
	}
	return []error{err}
}

// inField matches the field in an error of sigs.k8s.io/json.
var inField = regexp.MustCompile(`field "([^"]+)"`)

func (d *document) locate(positions *manifest.Positions, err error) error {
	path, source := "", d.item.Source
	if invalid, ok := errors.AsType[*field.Error](err); ok {
		path = invalid.Field
	} else if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		var text string
		path, text = strictyaml.Mismatch(wrong)
		err = fmt.Errorf("%s: %s", path, text)
		if _, indexed, fault := defaults.Check(d.item.GroupVersionKind(), d.item.JSON); indexed != "" {
			path, err = indexed, fault // it also names the elements of lists
		}
	} else if match := inField.FindStringSubmatch(err.Error()); match != nil {
		path = match[1]
	}
	if of := d.origin.object; of != nil {
		path = d.origin.policy.Origin(path)
		source.Line = positions.LineOf(of, path)
		return fmt.Errorf("%s: %s %q, in its translation: %w", source, of.Kind, of.Metadata.Name, err)
	}
	source.Line = positions.LineOf(&d.item.Object, path)
	hint := ""
	if tag := positions.TagOf(&d.item.Object, path); tag != "" {
		hint = strictyaml.QuotesHint("text: " + tag)
	}
	return fmt.Errorf("%s: %s %q: %w%s", source, d.item.Kind, d.item.Metadata.Name, err, hint)
}
