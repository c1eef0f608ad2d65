package ownerreferencespermissionenforcement

import (
	"context"
	"errors"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fastadmit/fastadmit/cluster"
)

const (
	// mapperTTL is how long the resources of a group version are cached, also if it is not
	// served: the same as in kube-apiserver (k8s.io/kubernetes
	// pkg/kubeapiserver/admission/config.go).
	mapperTTL = 30 * time.Second

	// mapperMax is the number of group versions whose mappings are cached: several times as
	// many as a cluster has, because users may name versions that do not exist.
	mapperMax = 512

	// apiVersionMax is the maximum length of a served group version. Longer ones, which
	// could be as long as a request, are neither looked up nor cached.
	apiVersionMax = validation.DNS1123SubdomainMaxLength + len("/") + validation.DNS1123LabelMaxLength
)

// A mapper finds the resources of kinds, as the discovery RESTMapper of kube-apiserver does
// (k8s.io/client-go/restmapper). It looks up group versions on demand.
type mapper struct {
	discovery *cluster.Discovery
	known     *cache.LRUExpireCache // *meta.DefaultRESTMapper, by schema.GroupVersion
}

func newMapper(discovery *cluster.Discovery) *mapper {
	return &mapper{discovery, cache.NewLRUExpireCache(mapperMax)}
}

// An undiscoveredError says that the API server did not answer.
type undiscoveredError struct{ error }

func (e *undiscoveredError) Unwrap() error { return e.error }

// mappings returns the resources that the kind of an owner may be. If there are none, the
// error says why. An undiscoveredError means that they are unknown.
func (m *mapper) mappings(ctx context.Context, owner *metav1.OwnerReference) ([]*meta.RESTMapping, error) {
	version, err := schema.ParseGroupVersion(strings.Clone(owner.APIVersion)) // a copy, because it becomes a key of the cache
	if err != nil {
		return nil, err
	}
	asked := version.Version
	if version.Empty() {
		version.Version = "v1" // in-tree accepts any version of the core group, which has only this one
	}
	known, ok := m.known.Get(version)
	switch {
	case ok:
	case len(owner.APIVersion) > apiVersionMax:
		known = mapperOf(version, nil)
	default:
		list, err := m.discovery.Resources(ctx, version)
		if err != nil {
			return nil, &undiscoveredError{err}
		}
		known = mapperOf(version, list)
		m.known.Add(version, known, mapperTTL)
	}
	mappings, err := known.(*meta.DefaultRESTMapper).RESTMappings(schema.GroupKind{Group: version.Group, Kind: owner.Kind},
		version.Version)
	if noMatch, ok := errors.AsType[*meta.NoKindMatchError](err); ok {
		noMatch.SearchedVersions = []string{asked}
	}
	return mappings, err
}

// mapperOf returns a mapper for the resources of a group version, without resources if the
// list is nil. It adds the same kinds as upstream, such as those of lists.
func mapperOf(version schema.GroupVersion, list *metav1.APIResourceList) *meta.DefaultRESTMapper {
	mapper := meta.NewDefaultRESTMapper(nil) // without default versions: all callers give one
	if list == nil {
		return mapper
	}
	for _, resource := range list.APIResources {
		if strings.Contains(resource.Name, "/") {
			continue
		}
		scope := meta.RESTScopeRoot
		if resource.Namespaced {
			scope = meta.RESTScopeNamespace
		}
		kind, plural := version.WithKind(resource.Kind), version.WithResource(resource.Name)
		singular := version.WithResource(resource.SingularName) // not used here
		mapper.AddSpecific(version.WithKind(strings.ToLower(resource.Kind)), plural, singular, scope)
		mapper.AddSpecific(kind, plural, singular, scope)
		mapper.Add(version.WithKind(resource.Kind+"List"), scope)
	}
	mapper.Add(version.WithKind("List"), meta.RESTScopeRoot)
	return mapper
}
