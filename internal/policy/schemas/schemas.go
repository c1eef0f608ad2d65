// Package schemas reads the OpenAPI schemas of the kinds that the API server serves, and
// caches them until they change.
package schemas

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/kube-openapi/pkg/schemaconv"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/json"
	smdschema "sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/fastadmit/fastadmit/cluster"
)

const (
	// pathsAge is the age at which the list of documents, which says which schemas are
	// current, is read again. kube-apiserver uses the same (k8s.io/apiserver
	// pkg/admission/plugin/policy/mutating/patch/typeconverter.go).
	pathsAge = 5 * time.Second
	// missingAge is the same for a group version that is not in the list. Its
	// CustomResourceDefinition may have been created just now.
	missingAge = time.Second
	// parsersMax is how many group versions are cached. The schemas of apps/v1 take 2 MB.
	parsersMax = 32
	// parserTTL is how long an unused group version is kept.
	parserTTL = time.Hour
)

// extension is the field of a schema that has its kinds.
const extension = "x-kubernetes-group-version-kind"

// Documents reads the OpenAPI documents of an API server. cluster.Discovery implements it.
type Documents interface {
	SchemaPaths(ctx context.Context) (map[schema.GroupVersion]string, error)
	Schema(ctx context.Context, path string) ([]byte, error)
}

// Schemas reads the schemas of an API server when they are needed, and again when they
// have changed. Several goroutines may use it at the same time.
type Schemas struct {
	documents Documents
	parsers   *cache.LRUExpireCache // of *parser, by group version
	parsing   singleflight.Group    // of documents, by path

	mu    sync.Mutex
	paths map[schema.GroupVersion]string
	asked time.Time // when paths were read
}

// New returns Schemas that read from documents.
func New(documents Documents) *Schemas {
	return &Schemas{documents: documents, parsers: cache.NewLRUExpireCache(parsersMax)}
}

// A parser has the schemas of a group version for merging.
type parser struct {
	path  string // of its document
	kinds map[schema.GroupVersionKind]typed.ParseableType
}

// NoVersionError means that the API server has no schemas for a group version.
type NoVersionError schema.GroupVersion

// Error implements error.
func (e NoVersionError) Error() string {
	return fmt.Sprintf("the API server has no schemas of %s", schema.GroupVersion(e))
}

// ErrNone means that there are no schemas: the objects of the cluster come from files, or
// the API server has no OpenAPI v3 documents.
var ErrNone = errors.New("the cluster has no schemas")

// Path returns the current path of the document for a group version. The path changes when
// the document changes. The error is a NoVersionError if the API server has no such
// document, and ErrNone if it has no documents. If the API server does not answer, Path
// returns the last known path.
func (s *Schemas) Path(ctx context.Context, version schema.GroupVersion) (string, error) {
	paths, age := s.listed()
	path, known := paths[version]
	if known && age < pathsAge || !known && age < missingAge {
		return found(version, path, known)
	}
	paths, err := s.list(ctx)
	switch {
	case errors.Is(err, ErrNone):
		return "", err
	case err != nil && known && ctx.Err() == nil:
		return path, nil
	case err != nil:
		return "", err
	}
	path, known = paths[version]
	return found(version, path, known)
}

// listed returns the last list of documents and its age. The list never changes.
func (s *Schemas) listed() (paths map[schema.GroupVersion]string, age time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.paths, time.Since(s.asked)
}

// list asks the API server for the list of documents. The error is ErrNone if there are
// none.
func (s *Schemas) list(ctx context.Context) (map[schema.GroupVersion]string, error) {
	began := time.Now()
	paths, err := s.documents.SchemaPaths(ctx)
	if cluster.IsWithoutAPIServer(err) || err == nil && paths == nil {
		return nil, ErrNone
	}
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paths, s.asked = paths, began
	return paths, nil
}

func found(version schema.GroupVersion, path string, known bool) (string, error) {
	if !known {
		return "", NoVersionError(version)
	}
	return path, nil
}

// Versions returns the group versions for which the API server has schemas, in no order.
// It returns an empty list if there are no schemas.
func (s *Schemas) Versions(ctx context.Context) ([]schema.GroupVersion, error) {
	paths, age := s.listed()
	if age >= pathsAge {
		var err error
		if paths, err = s.list(ctx); err != nil && !errors.Is(err, ErrNone) {
			return nil, err
		}
	}
	return slices.Collect(maps.Keys(paths)), nil
}

// Type returns the schema of a kind for server-side apply. ok is false if the document of
// the group version has no schema for the kind. The errors are those of Path and of the
// API server, or say that the document is invalid. The strings of gvk are not retained.
func (s *Schemas) Type(ctx context.Context, gvk schema.GroupVersionKind) (kind typed.ParseableType, ok bool, err error) {
	version := gvk.GroupVersion()
	path, err := s.Path(ctx, version)
	if err != nil {
		return kind, false, err
	}
	cached, _ := s.parsers.Get(version)
	p, _ := cached.(*parser)
	if p == nil || p.path != path {
		text, err := s.documents.Schema(ctx, path)
		if err != nil {
			return kind, false, err
		}
		if p, err = s.parse(version, path, text); err != nil {
			return kind, false, err
		}
	}
	kind, ok = p.kinds[gvk]
	return kind, ok, nil
}

// parse returns the parser of a document. Callers that need it at the same time share one run.
// Each of them has read the document itself, within its own ctx.
func (s *Schemas) parse(version schema.GroupVersion, path string, text []byte) (*parser, error) {
	made, err, _ := s.parsing.Do(path, func() (any, error) {
		if cached, _ := s.parsers.Get(version); cached != nil && cached.(*parser).path == path {
			return cached, nil // another goroutine parsed it meanwhile
		}
		definitions, err := definitionsIn(text, path)
		if err != nil {
			return nil, err
		}
		p, err := newParser(path, definitions)
		if err != nil {
			return nil, fmt.Errorf("the schemas of %s cannot be read: %w", version, err)
		}
		version.Group, version.Version = strings.Clone(version.Group), strings.Clone(version.Version) // of a review
		s.parsers.Add(version, p, parserTTL)
		return p, nil
	})
	p, _ := made.(*parser)
	return p, err
}

// Definitions returns all schemas of the document at a path of Path, by their names. The
// result is not cached, so the caller owns it.
func (s *Schemas) Definitions(ctx context.Context, path string) (map[string]*spec.Schema, error) {
	text, err := s.documents.Schema(ctx, path)
	if err != nil {
		return nil, err
	}
	return definitionsIn(text, path)
}

func definitionsIn(text []byte, path string) (map[string]*spec.Schema, error) {
	var document struct {
		Components struct {
			Schemas map[string]*spec.Schema `json:"schemas"`
		} `json:"components"`
	}
	if err := json.UnmarshalCaseSensitivePreserveInts(text, &document); err != nil {
		return nil, fmt.Errorf("the schemas at %q cannot be read: %w", path, err)
	}
	return document.Components.Schemas, nil
}

// newParser does what managedfields.NewTypeConverter does (k8s.io/apimachinery
// pkg/util/managedfields/internal/typeconverter.go).
func newParser(path string, definitions map[string]*spec.Schema) (*parser, error) {
	converted, err := schemaconv.ToSchemaFromOpenAPI(definitions, false)
	if err != nil {
		return nil, err
	}
	all := typed.Parser{Schema: smdschema.Schema{Types: converted.Types}}
	p := &parser{path: path, kinds: make(map[schema.GroupVersionKind]typed.ParseableType)}
	for name, definition := range definitions {
		for _, gvk := range KindsOf(definition) {
			p.kinds[gvk] = all.Type(name)
		}
	}
	return p, nil
}

// KindsOf returns the kinds in the extension x-kubernetes-group-version-kind of a schema.
func KindsOf(definition *spec.Schema) (kinds []schema.GroupVersionKind) {
	if err := definition.Extensions.GetObject(extension, &kinds); err != nil {
		return nil
	}
	return kinds
}

// In returns the Schemas of a cluster. It panics if cluster.DiscoveredSchemas is not
// among the needs of the View.
func In(v *cluster.View) *Schemas { return New(cluster.DiscoveryIn(v)) }
