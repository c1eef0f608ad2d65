package policy

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"time"

	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/internal/policy/translate"
)

// translated replaces the policies of other engines in the files by their translations. A translation
// into another kind is an error, because the plugin of this kind does not evaluate it.
func translated(manifests []admission.File, kind string) (all []admission.File, errs []error) {
	var texts [][]byte
	var from []*admission.File
	for i := range manifests {
		file := &manifests[i]
		rest, foreign := divide(file.Content)
		if foreign == nil {
			all = append(all, *file)
			continue
		}
		for _, text := range foreign {
			texts, from = append(texts, text), append(from, file)
		}
		all = append(all, admission.File{Name: file.Name, Content: rest, FromAPI: file.FromAPI})
	}
	if texts == nil {
		return all, nil
	}
	result := translate.Translate(texts, translate.Options{Now: time.Now(), Functions: true})
	for _, problem := range result.Problems {
		if !problem.IsNote {
			errs = append(errs, &admission.FileError{File: from[problem.Document].Name, Err: problem})
		}
	}
	for _, p := range result.Policies {
		file := from[p.Document]
		objects, err := p.Objects()
		if isMutating := p.Mutating != nil; err == nil && isMutating != (kind == mutatingKind) {
			err = errors.New("the translation is of another kind than " + kind + ": move the document to the folder of the other plugin for policies")
		}
		if err != nil {
			errs = append(errs, &admission.FileError{File: file.Name, Err: err})
			continue
		}
		for _, text := range objects {
			all = append(all, admission.File{Name: file.Name, Content: text, FromAPI: file.FromAPI, Functions: p.Functions})
		}
	}
	return all, errs
}

// divide divides a file into the policies of other engines, in JSON, and the rest. Without
// such policies, foreign is nil.
func divide(content []byte) (rest []byte, foreign [][]byte) {
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(content)))
	for {
		document, err := reader.Read()
		if err != nil {
			if !errors.Is(err, io.EOF) {
				return content, nil // documents.Reader reports it
			}
			return rest, foreign
		}
		if translate.MayBeForeign(document) {
			text, err := yaml.YAMLToJSONStrict(document)
			if err == nil && translate.IsForeign(typeOf(text)) {
				foreign = append(foreign, text)
				continue
			}
		}
		rest = fmt.Appendf(rest, "---\n%s\n", document)
	}
}
