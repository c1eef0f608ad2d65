package oracle

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/meta/testrestmapper"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	authorizationapi "k8s.io/kubernetes/pkg/apis/authorization"
	authorizationutil "k8s.io/kubernetes/pkg/registry/authorization/util"
)

// A standIn is the API server of all worlds that have an authorizer. It answers SubjectAccessReviews as
// the authorizer does, and serves the discovery of Kubernetes' resources. It runs as long as the process.
type standIn struct {
	url    string
	mu     sync.Mutex
	worlds []authorizer.UnconditionalAuthorizer
}

var theStandIn = sync.OnceValue(func() *standIn {
	s := new(standIn)
	s.url = httptest.NewServer(s).URL
	return s
})

// kubeconfig writes a kubeconfig for the stand-in as the API server of a world.
// The caller removes it.
func (s *standIn) kubeconfig(world authorizer.UnconditionalAuthorizer) (file string, err error) {
	s.mu.Lock()
	s.worlds = append(s.worlds, world)
	server := fmt.Sprint(s.url, "/", len(s.worlds)-1)
	s.mu.Unlock()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: server}
	config.Contexts["c"] = &clientcmdapi.Context{Cluster: "c"}
	config.CurrentContext = "c"
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		return "", err
	}
	file = filepath.Join(dir, "kubeconfig")
	return file, clientcmd.WriteToFile(*config, file)
}

// ServeHTTP implements http.Handler. Paths begin with the number of a world.
func (s *standIn) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	number, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	world, err := strconv.Atoi(number)
	var answer any
	switch {
	case err != nil:
	case rest == "apis/authorization.k8s.io/v1/subjectaccessreviews":
		s.mu.Lock()
		who := s.worlds[world]
		s.mu.Unlock()
		answer, err = reviewed(r.Context(), who, r.Body)
	default:
		for _, list := range discovered() {
			if rest == path.Join("apis", list.GroupVersion) || list.GroupVersion == "v1" && rest == "api/v1" {
				answer = list
			}
		}
	}
	switch {
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	case answer == nil:
		http.NotFound(w, r)
	default:
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			panic(err)
		}
	}
}

// reviewed answers as an API server does (k8s.io/kubernetes
// pkg/registry/authorization/subjectaccessreview/rest.go).
func reviewed(ctx context.Context, who authorizer.UnconditionalAuthorizer, body io.Reader) (*authorizationv1.SubjectAccessReview, error) {
	content, err := io.ReadAll(body)
	if err != nil {
		return nil, err
	}
	decoded, _, err := legacyscheme.Codecs.UniversalDeserializer().Decode(content, nil, nil)
	if err != nil {
		return nil, err
	}
	review := decoded.(*authorizationv1.SubjectAccessReview)
	var spec authorizationapi.SubjectAccessReviewSpec
	if err := legacyscheme.Scheme.Convert(&review.Spec, &spec, nil); err != nil {
		return nil, err
	}
	attributes := authorizationutil.AuthorizationAttributesFrom(spec)
	decision, reason, err := who.Authorize(ctx, attributes)
	review.Kind, review.APIVersion = "SubjectAccessReview", authorizationv1.SchemeGroupVersion.String()
	review.Status = authorizationv1.SubjectAccessReviewStatus{
		Allowed: decision == authorizer.DecisionAllow, Denied: decision == authorizer.DecisionDeny, Reason: reason,
		EvaluationError: authorizationutil.BuildEvaluationError(err, attributes),
	}
	return review, nil
}

// discovered returns the resources of all kinds that Kubernetes has, as
// discovery does.
var discovered = sync.OnceValue(func() []*metav1.APIResourceList {
	static := testrestmapper.TestOnlyStaticRESTMapper(legacyscheme.Scheme)
	var lists []*metav1.APIResourceList
	for _, version := range legacyscheme.Scheme.PrioritizedVersionsAllGroups() {
		list := &metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
			GroupVersion: version.String()}
		for kind := range legacyscheme.Scheme.KnownTypes(version) {
			mapping, err := static.RESTMapping(version.WithKind(kind).GroupKind(), version.Version)
			if err != nil || strings.HasSuffix(kind, "List") {
				continue
			}
			list.APIResources = append(list.APIResources, metav1.APIResource{
				Name: mapping.Resource.Resource, SingularName: strings.ToLower(kind), Kind: kind,
				Namespaced: mapping.Scope.Name() == meta.RESTScopeNameNamespace,
			})
		}
		lists = append(lists, list)
	}
	return lists
})

// restMapper returns the RESTMapper of kube-apiserver for the discovered resources.
func restMapper() meta.RESTMapper {
	var groups []*restmapper.APIGroupResources
	for _, list := range discovered() {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			panic(err)
		}
		served := metav1.GroupVersionForDiscovery{GroupVersion: list.GroupVersion, Version: version.Version}
		groups = append(groups, &restmapper.APIGroupResources{
			Group:              metav1.APIGroup{Name: version.Group, Versions: []metav1.GroupVersionForDiscovery{served}},
			VersionedResources: map[string][]metav1.APIResource{version.Version: list.APIResources},
		})
	}
	return restmapper.NewDiscoveryRESTMapper(groups)
}
