package cluster

import (
	"context"
	"fmt"
	"path"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
)

// discovered stands for what there are no objects of: the resources that the API
// server serves.
var discovered = &Kind{version: schema.GroupVersion{Version: "v1"}, name: "APIResourceList", resource: "discovery", protobuf: true}

// discoveryURLs are what discovery asks for. Everybody who is authenticated may,
// unless somebody took that away (ClusterRole system:discovery).
var discoveryURLs = []string{"/api/*", "/apis/*"}

// Discovered is the need to ask which resources the API server serves.
func Discovered() Need { return discovered.Called("get") }

// Discovery says which resources the API server serves.
type Discovery struct {
	store  *store
	plugin string
}

// DiscoveryIn returns the Discovery of a cluster. It panics if Discovered is not
// among the needs of the View.
func DiscoveryIn(v *View) *Discovery {
	for _, need := range v.needs {
		if store := v.state.find(discovered); need.Kind == discovered && store != nil {
			return &Discovery{store, v.plugin}
		}
	}
	panic("cluster state: discovery is asked for, but not declared as needed")
}

// Resources asks the API server for the resources of a group version, nil if it
// does not serve that. Who asks for the same at the same time shares a request.
// The list is shared and must not be changed. Files cannot say, which is an error.
func (d *Discovery) Resources(ctx context.Context, version schema.GroupVersion) (*metav1.APIResourceList, error) {
	s := d.store
	if s.client == nil {
		return nil, fmt.Errorf("cluster state: cannot discover %q: %w", version, errNoAPIServer)
	}
	url := path.Join("/apis", version.Group, version.Version)
	if version.Group == "" {
		url = path.Join("/api", version.Version)
	} else if len(validation.IsDNS1123Subdomain(version.Group)) > 0 {
		return nil, nil // nobody can serve that, and it may be meant to be another path
	}
	if len(validation.IsDNS1123Label(version.Version)) > 0 {
		return nil, nil
	}
	what := s.named("", version.String())
	list, err := s.share(asCaller(ctx, d.plugin, ""), what, what, func(ctx context.Context) (runtime.Object, error) {
		list := new(metav1.APIResourceList)
		err := s.client.Get().AbsPath(url).Do(ctx).Into(list)
		if apierrors.IsNotFound(err) { // the API server has no Status for a path that it does not know
			err = apierrors.NewNotFound(s.kind.Resource(), url) // version may be a view of a review that is over
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
