// Package corpus holds AdmissionReview bodies as kube-apiserver v1.36.3 sent
// them to a webhook, byte for byte: <resource>[-<subresource>]-<operation>-
// <review version>-<number>.json.
package corpus

import (
	"embed"
	"io/fs"
)

//go:embed *.json
var files embed.FS

// Cluster is a file of manifests with the objects that plugins need to review the
// recorded Pods of the namespace shop.
//
//go:embed cluster.yaml
var Cluster []byte

// Names returns the names of all recordings, sorted.
func Names() []string {
	names, err := fs.Glob(files, "*.json")
	if err != nil {
		panic(err) // the pattern is a constant
	}
	return names
}

// Read returns the body of a recording. The caller may change it.
func Read(name string) ([]byte, error) { return files.ReadFile(name) }

// MustRead is Read, but panics if the recording does not exist.
func MustRead(name string) []byte {
	body, err := Read(name)
	if err != nil {
		panic(err)
	}
	return body
}
