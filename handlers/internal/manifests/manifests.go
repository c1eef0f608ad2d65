// Package manifests reads objects of the API from files that the configuration of a
// plugin names.
package manifests

import (
	"bufio"
	"bytes"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/fastadmit/fastadmit/handlers"
)

// A Kind says which documents are read.
type Kind struct {
	APIVersions []string // that the documents may have
	Kind        string
}

// Read calls add with each document, as JSON: those of lists, too. The error joins all
// that is wrong, each of it a handlers.FileError: documents of other kinds, fields that
// are there twice, and what add refuses.
func (k Kind) Read(files []handlers.File, add func(document []byte) error) error {
	var errs []error
	for i := range files {
		for _, err := range k.readFile(files[i].Content, add) {
			errs = append(errs, &handlers.FileError{File: files[i].Name, Err: err})
		}
	}
	return utilerrors.NewAggregate(errs)
}

func (k Kind) readFile(content []byte, add func([]byte) error) (errs []error) {
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(content)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return errs
		}
		if err == nil {
			document, err = yaml.YAMLToJSONStrict(document)
		}
		if err != nil {
			return append(errs, err)
		}
		if string(document) != "null" {
			errs = append(errs, k.read(document, metav1.TypeMeta{}, add)...)
		}
	}
}

// read reads a document, which is what otherwise says unless it says what it is.
func (k Kind) read(document []byte, otherwise metav1.TypeMeta, add func([]byte) error) (errs []error) {
	var what metav1.TypeMeta
	if err := json.UnmarshalCaseSensitivePreserveInts(document, &what); err != nil {
		return []error{err}
	}
	if what == (metav1.TypeMeta{}) {
		what = otherwise
	}
	single, isList := strings.CutSuffix(what.Kind, "List")
	ofAnything := isList && single == "" && what.APIVersion == "v1"
	if !ofAnything && !slices.Contains(k.APIVersions, what.APIVersion) {
		return []error{fmt.Errorf("apiVersion: got %q, want one of %q", what.APIVersion, k.APIVersions)}
	}
	if !ofAnything && single != k.Kind {
		return []error{fmt.Errorf("kind: got %q, want %s or a list of them", what.Kind, k.Kind)}
	}
	if !isList {
		if err := add(document); err != nil {
			return []error{err}
		}
		return nil
	}
	var list struct {
		metav1.TypeMeta `json:",inline"`
		metav1.ListMeta `json:"metadata"`
		Items           []stdjson.RawMessage `json:"items"`
	}
	if err := Decode(document, &list); err != nil {
		return []error{err}
	}
	for i, item := range list.Items {
		for _, err := range k.read(item, metav1.TypeMeta{APIVersion: what.APIVersion, Kind: single}, add) {
			errs = append(errs, fmt.Errorf("items[%d]: %w", i, err))
		}
	}
	return errs
}

// Decode decodes a document or a part of it into what into points to. Fields that it
// does not have are an error.
func Decode(document []byte, into any) error {
	strict, err := json.UnmarshalStrict(document, into)
	if err != nil {
		return err
	}
	return utilerrors.NewAggregate(strict)
}
