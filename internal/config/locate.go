package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/internal/strictyaml"
)

// A place is the position of a plugin's own configuration.
type place struct {
	document *strictyaml.Document
	path     string // in the document, "" for all of it
}

// place records the position of a plugin's configuration.
func (r *reader) place(plugin string, document *strictyaml.Document, path string) {
	if r.places == nil {
		r.places = make(map[string]place)
	}
	r.places[plugin] = place{document, path}
}

// strictField matches the errors of alike.UnmarshalStrict for an unknown field, with a hint, and for a duplicate field.
var strictField = regexp.MustCompile(`^(unknown|duplicate) field "((?:[^"\\]|\\.)*)"(.*)$`)

// Locate adds the file and line to errors of admission.NewChain in the configuration files of
// plugins. It returns other errors unchanged.
func (l *Loaded) Locate(err error) error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []error
		for _, err := range joined.Unwrap() {
			all = append(all, l.Locate(err))
		}
		return errors.Join(all...)
	}
	enable, ok := errors.AsType[*admission.EnableError](err)
	if !ok {
		return err
	}
	at, ok := l.places[enable.Plugin]
	if !ok {
		return err
	}
	faults := []error{enable.Err}
	if several, ok := errors.AsType[utilerrors.Aggregate](enable.Err); ok {
		faults = several.Errors()
	}
	for i, fault := range faults {
		faults[i] = at.locate(enable.Plugin, fault)
	}
	return errors.Join(faults...)
}

func (p place) locate(plugin string, err error) error {
	if _, ok := errors.AsType[*admission.FileError](err); ok { // the error is not about the configuration
		return fmt.Errorf("plugin %s: %w", plugin, err)
	}
	path, text := "", err.Error()
	if invalid, ok := errors.AsType[*field.Error](err); ok {
		path, text = invalid.Field, invalid.ErrorBody()
	} else if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		path, text = strictyaml.Mismatch(wrong)
	} else if fault := strictField.FindStringSubmatch(text); fault != nil {
		path, text = fault[2], fault[1]+" field"+fault[3]
	}
	if p.path != "" {
		path = strings.TrimSuffix(p.path+"."+path, ".")
	}
	return p.document.Errorf(path, "plugin %s: %s", plugin, text)
}
