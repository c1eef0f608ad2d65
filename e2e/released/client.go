package released

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/meta/testrestmapper"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
)

// Refuse is a reaction of a fake client. It answers invalid requests with an error. A real client does not send them
// (k8s.io/client-go rest), but the fake one does not check requests.
func Refuse(action clienttesting.Action) (handled bool, object runtime.Object, err error) {
	request := rest.NewRequestWithClient(new(url.URL), "", rest.ClientContentConfig{}, nil).
		NamespaceIfScoped(action.GetNamespace(), action.GetNamespace() != "").Resource(action.GetResource().Resource)
	if get, ok := action.(clienttesting.GetAction); ok {
		request = request.Name(get.GetName())
	}
	return request.Error() != nil, nil, request.Error()
}

// Reformat is a reaction of a fake client to the update of a quota. It parses the used quantities again, as after a
// write to an API server. The fake client stores objects without encoding them, so sums would stay in the format of
// their first addend.
func Reformat(action clienttesting.Action) (handled bool, object runtime.Object, err error) {
	used := action.(clienttesting.UpdateAction).GetObject().(*corev1.ResourceQuota).Status.Used
	for name, quantity := range used {
		used[name] = resource.MustParse(quantity.String())
	}
	return false, nil, nil
}

// Quotas returns the quotas of a client, after the informer of the lister, from which the plugin reads, has received
// them.
func Quotas(client kubernetes.Interface, lister listers.ResourceQuotaLister) ([]*corev1.ResourceQuota, error) {
	list, err := client.CoreV1().ResourceQuotas("").List(context.Background(), metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var quotas []*corev1.ResourceQuota
	for i := range list.Items {
		want := &list.Items[i]
		quotas = append(quotas, want)
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Microsecond) {
			got, err := lister.ResourceQuotas(want.Namespace).Get(want.Name)
			if err == nil && equality.Semantic.DeepEqual(got.Status, want.Status) {
				break
			}
			if time.Now().After(deadline) {
				return nil, errors.Join(errors.New("the informer has not received a quota"), err)
			}
		}
	}
	return quotas, nil
}

// implicitClaims is the prefix of the resources in quotas that count the claims of a DeviceClass which the scheduler
// makes: ResourceImplicitExtendedClaimsPerClass of k8s.io/api core/v1, since v0.34.
const implicitClaims = "requests.deviceclass.resource.kubernetes.io/"

// AwaitClasses waits until the evaluator of ResourceClaims knows the DeviceClasses among the objects. Waiting for the
// informers does not suffice, because the evaluator learns of the classes later.
func AwaitClasses(evaluators []quota.Evaluator, objects []runtime.Object) error {
	claims := schema.GroupResource{Group: "resource.k8s.io", Resource: "resourceclaims"}
	at := slices.IndexFunc(evaluators, func(e quota.Evaluator) bool { return e.GroupResource() == claims })
	for _, object := range objects {
		kinds, _, err := scheme.Scheme.ObjectKinds(object)
		if err != nil {
			return err
		}
		if kinds[0].Kind != "DeviceClass" {
			continue
		}
		class, err := meta.Accessor(object)
		if err != nil {
			return err
		}
		implicit := []corev1.ResourceName{corev1.ResourceName(implicitClaims + class.GetName())}
		for deadline := time.Now().Add(time.Minute); len(evaluators[at].MatchingResources(implicit)) == 0; time.Sleep(20 * time.Microsecond) {
			if time.Now().After(deadline) {
				return fmt.Errorf("the evaluator of claims does not know the DeviceClass %s", class.GetName())
			}
		}
	}
	return nil
}

// Discovered returns the resources of all kinds that the release has, as discovery does.
var Discovered = sync.OnceValue(func() []*metav1.APIResourceList {
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

// RESTMapper returns the RESTMapper of kube-apiserver for the discovered resources.
func RESTMapper() meta.RESTMapper {
	var groups []*restmapper.APIGroupResources
	for _, list := range Discovered() {
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
