// Package documents reads the documents of manifests, such as policies and webhook
// configurations, as kube-apiserver reads those of a folder that a plugin's
// configuration names (k8s.io/apiserver v0.36.3 pkg/admission/plugin/manifest).
package documents

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
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// A Reader reads documents of some kinds, and lists of them.
type Reader struct {
	// APIVersions and Kinds are those that there may be.
	APIVersions, Kinds []string
	// Add takes a document, as JSON, and says what is wrong with it.
	Add func(kind string, content []byte) []error
}

// Read reads the documents of a file, and returns all that is wrong with them.
func (r *Reader) Read(content []byte) (errs []error) {
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(content)))
	for {
		document, err := documents.Read()
		if err != nil {
			if !errors.Is(err, io.EOF) {
				errs = append(errs, err)
			}
			return errs
		}
		content, err := yaml.YAMLToJSONStrict(document)
		switch {
		case err != nil:
			errs = append(errs, err)
		case string(content) != "null":
			errs = append(errs, r.add(content, metav1.TypeMeta{})...)
		}
	}
}

// add adds what is in a document, which is what otherwise says unless it says what
// it is.
func (r *Reader) add(content []byte, otherwise metav1.TypeMeta) []error {
	var kind metav1.TypeMeta
	if err := json.UnmarshalCaseSensitivePreserveInts(content, &kind); err != nil {
		return []error{err}
	}
	if kind.Kind == "" && kind.APIVersion == "" {
		kind = otherwise
	}
	single, isList := strings.CutSuffix(kind.Kind, "List")
	if kind.APIVersion != "v1" || kind.Kind != "List" {
		if !slices.Contains(r.APIVersions, kind.APIVersion) {
			return []error{fmt.Errorf("apiVersion: got %q, want one of %q", kind.APIVersion, r.APIVersions)}
		}
	}
	if isList {
		return r.addList(content, metav1.TypeMeta{APIVersion: kind.APIVersion, Kind: single})
	}
	if !slices.Contains(r.Kinds, kind.Kind) {
		return []error{fmt.Errorf("kind: got %q, want %s or a list of them", kind.Kind, strings.Join(r.Kinds, ", "))}
	}
	return r.Add(kind.Kind, content)
}

// addList adds the items of a list, which need not say what they are if the list
// does.
func (r *Reader) addList(content []byte, of metav1.TypeMeta) (errs []error) {
	var list struct {
		metav1.TypeMeta `json:",inline"`
		metav1.ListMeta `json:"metadata"`
		Items           []stdjson.RawMessage `json:"items"`
	}
	if errs := Decode(content, &list); errs != nil {
		return errs
	}
	for i, item := range list.Items {
		for _, err := range r.add(item, of) {
			errs = append(errs, fmt.Errorf("items[%d]: %w", i, err))
		}
	}
	return errs
}

// Decode decodes a document and refuses fields that are unknown or there twice.
func Decode(content []byte, into any) []error {
	strict, err := json.UnmarshalStrict(content, into)
	if err != nil {
		return []error{err}
	}
	return strict
}
