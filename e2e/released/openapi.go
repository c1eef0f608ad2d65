package released

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"k8s.io/client-go/openapi"
)

// A folder has a file for each path of OpenAPI v3, named as in k8s.io/kubernetes api/openapi-spec/v3:
// apis__apps__v1_openapi.json. An empty one has none.
type folder string

const documentSuffix = "_openapi.json"

// Paths implements openapi.Client.
func (f folder) Paths() (map[string]openapi.GroupVersion, error) {
	files, err := filepath.Glob(filepath.Join(string(f), "*"+documentSuffix))
	paths := make(map[string]openapi.GroupVersion, len(files))
	for _, file := range files {
		path := strings.TrimSuffix(filepath.Base(file), documentSuffix)
		paths[strings.ReplaceAll(path, "__", "/")] = document(file)
	}
	return paths, err
}

// has reports whether there is a document of a group version.
func (f folder) has(group, version string) bool {
	path := "api__" + version
	if group != "" {
		path = "apis__" + group + "__" + version
	}
	_, err := os.Stat(filepath.Join(string(f), path+documentSuffix))
	return err == nil
}

// A document is the name of a file.
type document string

// ServerRelativeURL implements openapi.GroupVersion.
func (d document) ServerRelativeURL() string { return string(d) }

// schemas has the contents of the documents that were read: each cluster reads them again.
var schemas sync.Map

// Schema implements openapi.GroupVersion. It returns the schemas alone, because the paths, which nobody reads, are most
// of a document.
func (d document) Schema(string) ([]byte, error) {
	if known, ok := schemas.Load(d); ok {
		return known.([]byte), nil
	}
	content, err := os.ReadFile(string(d))
	if err != nil {
		return nil, err
	}
	var all struct {
		Components json.RawMessage `json:"components"`
	}
	if err := json.Unmarshal(content, &all); err != nil {
		return nil, err
	}
	content, err = json.Marshal(all)
	schemas.Store(d, content)
	return content, err
}
