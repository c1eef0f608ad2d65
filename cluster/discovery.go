package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/json"
)

// discovered is the kind of the need for discovery. It has no objects.
var discovered = &Kind{version: schema.GroupVersion{Version: "v1"}, name: "APIResourceList", resource: "discovery", protobuf: true}

// discoveryURLs are the paths that discovery requests. By default, every authenticated
// user may (ClusterRole system:discovery).
var discoveryURLs = []string{"/api/*", "/apis/*"}

// schemaURLs are the paths that Schema requests. The same role allows them.
var schemaURLs = []string{"/openapi/v3", "/openapi/v3/*"}

// schemas is the subresource of discovered for schemaURLs.
const schemas = "schemas"

// schemaBytesMax is the maximum length of the OpenAPI document of a group version. The
// longest of Kubernetes' own has 1 MiB; a CustomResourceDefinition has at most 1.5 MiB,
// because etcd stores no more, and few groups have more than ten.
const schemaBytesMax = 32 << 20

// Discovered is the need for Discovery.Resources.
func Discovered() Need { return discovered.Called("get") }

// DiscoveredSchemas is the need for Discovery.SchemaPaths and Discovery.Schema.
func DiscoveredSchemas() Need {
	need := Discovered()
	need.SubResource = schemas
	return need
}

// Discovery looks up which resources the API server serves, and their schemas.
type Discovery struct {
	store  *store
	plugin string
}

// DiscoveryIn returns the Discovery of a cluster. It panics if neither Discovered nor
// DiscoveredSchemas is among the needs of the View.
func DiscoveryIn(v *View) *Discovery {
	for _, need := range v.needs {
		if store := v.state.find(discovered); need.Kind == discovered && store != nil {
			return &Discovery{store, v.plugin}
		}
	}
	panic("cluster state: the plugin uses discovery, but does not declare it in its Needs")
}

// Resources asks the API server for the resources of a group version. The result is
// nil if the API server does not serve the group version. Concurrent equal calls share
// a request. The list is shared and must not be changed. Without an API server,
// Resources returns an error; see IsWithoutAPIServer.
func (d *Discovery) Resources(ctx context.Context, version schema.GroupVersion) (*metav1.APIResourceList, error) {
	s := d.store
	if s.client == nil {
		return nil, fmt.Errorf("cluster state: cannot discover %q: %w", version, errNoAPIServer)
	}
	url := path.Join("/apis", version.Group, version.Version)
	if version.Group == "" {
		url = path.Join("/api", version.Version)
	} else if len(validation.IsDNS1123Subdomain(version.Group)) > 0 {
		return nil, nil // no API server can have that group, and in a URL it may be another path
	}
	if len(validation.IsDNS1123Label(version.Version)) > 0 {
		return nil, nil
	}
	what := s.named("", version.String())
	list, err := s.share(asCaller(ctx, d.plugin, ""), what, what, func(ctx context.Context) (runtime.Object, error) {
		list := new(metav1.APIResourceList)
		err := s.client.Get().AbsPath(url).Do(ctx).Into(list)
		if apierrors.IsNotFound(err) { // the API server has no Status for a path that it does not know
			// The error has url, not version, which may be a view of a review that ends earlier.
			err = apierrors.NewNotFound(s.kind.Resource(), url)
		}
		return list, s.counted(verbGet, what, err)
	})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return list.(*metav1.APIResourceList), nil
}

// Versions asks the API server for the versions of a group that it serves, nil for none.
// Concurrent equal calls share a request. Without an API server, Versions returns an error; see
// IsWithoutAPIServer.
func (d *Discovery) Versions(ctx context.Context, group string) ([]string, error) {
	s := d.store
	switch {
	case s.client == nil:
		return nil, fmt.Errorf("cluster state: cannot discover %q: %w", group, errNoAPIServer)
	case group == "":
		return []string{"v1"}, nil
	case len(validation.IsDNS1123Subdomain(group)) > 0:
		return nil, nil // see Resources
	}
	what := s.named("", group)
	got, err := s.share(asCaller(ctx, d.plugin, ""), "versions of "+what, what, func(ctx context.Context) (runtime.Object, error) {
		served := new(metav1.APIGroup)
		err := s.client.Get().AbsPath("/apis", group).Do(ctx).Into(served)
		if apierrors.IsNotFound(err) { // as in Resources
			err = apierrors.NewNotFound(s.kind.Resource(), "/apis/"+what)
		}
		return served, s.counted(verbGet, what, err)
	})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var versions []string
	for _, v := range got.(*metav1.APIGroup).Versions {
		versions = append(versions, v.Version)
	}
	return versions, nil
}

// SchemaPaths asks the API server for the paths of its OpenAPI v3 documents, by group
// version. The path of a document changes when the document changes. The result is nil
// if the API server has no such documents. Concurrent calls share a request. Without an
// API server, SchemaPaths returns an error; see IsWithoutAPIServer.
func (d *Discovery) SchemaPaths(ctx context.Context) (map[schema.GroupVersion]string, error) {
	text, err := d.document(ctx, schemaURLs[0])
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	var index struct {
		Paths map[string]struct {
			ServerRelativeURL string `json:"serverRelativeURL"`
		} `json:"paths"`
	}
	if err == nil {
		err = json.UnmarshalCaseSensitivePreserveInts(text, &index)
	}
	if err != nil {
		return nil, fmt.Errorf("cluster state: cannot read the API server's list of schemas: %w", err)
	}
	paths := make(map[schema.GroupVersion]string, len(index.Paths))
	for name, document := range index.Paths {
		group, isAPI := strings.CutPrefix(name, "apis/")
		if !isAPI {
			group, isAPI = strings.CutPrefix(name, "api/")
		}
		if version, err := schema.ParseGroupVersion(group); isAPI && err == nil {
			paths[version] = document.ServerRelativeURL
		}
	}
	return paths, nil
}

// Schema asks the API server for the document at one of the paths of SchemaPaths, and
// returns its JSON. Concurrent equal calls share a request and the result, which must
// not be changed.
func (d *Discovery) Schema(ctx context.Context, path string) ([]byte, error) {
	text, err := d.document(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("cluster state: cannot read a schema: %w", err)
	}
	return text, nil
}

// IsWithoutAPIServer reports whether err means that a request needs an API server, but
// the objects of the cluster come from files.
func IsWithoutAPIServer(err error) bool { return errors.Is(err, errNoAPIServer) }

// document requests an OpenAPI document.
func (d *Discovery) document(ctx context.Context, url string) ([]byte, error) {
	s := d.store
	if s.client == nil {
		return nil, fmt.Errorf("cannot get %q: %w", url, errNoAPIServer)
	}
	what := s.named("", url)
	document, err := s.share(asCaller(ctx, d.plugin, ""), what, what, func(ctx context.Context) (runtime.Object, error) {
		text, err := readAll(s.client.Get().RequestURI(url).SetHeader("Accept", runtime.ContentTypeJSON).Stream(streamed(ctx)))
		if apierrors.IsNotFound(err) { // the API server has no Status for a path that it does not know
			err = apierrors.NewNotFound(s.kind.Resource(), url)
		}
		return &runtime.Unknown{Raw: text}, s.counted(verbGet, what, err)
	})
	if err != nil {
		return nil, err
	}
	return document.(*runtime.Unknown).Raw, nil
}

// readAll reads a document whose length is bounded, and closes it.
func readAll(document io.ReadCloser, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	defer document.Close()
	text, err := io.ReadAll(io.LimitReader(document, schemaBytesMax+1))
	if len(text) > schemaBytesMax {
		err = fmt.Errorf("got more than %d bytes, the maximum for a schema", schemaBytesMax)
	}
	return text, err
}
