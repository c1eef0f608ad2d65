package oracle

import (
	"bytes"
	"context"
	"io"
	"net/url"
	"slices"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/util/compatibility"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/authorization"
	kubeadmission "k8s.io/kubernetes/pkg/controlplane/apiserver/admission"
	"k8s.io/kubernetes/pkg/kubeapiserver/options"
	"k8s.io/kubernetes/pkg/quota/v1/install"
	authorizationutil "k8s.io/kubernetes/pkg/registry/authorization/util"

	fastadmit "github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
)

// upstream is a plugin of the API server that is linked in.
type upstream struct {
	plugin admission.Interface
	client kubernetes.Interface
}

// A World is the cluster that both implementations are asked in.
type World struct {
	// Objects are what there is, of the kinds that fastadmit knows, with their
	// defaults. Each side has its own copies, and may write to them.
	Objects []runtime.Object
	// Authorizer says who may do what; nil if everybody may do everything. Of a
	// world with one, fastadmit sees a stand-in for an API server, which has none of
	// the Objects.
	Authorizer authorizer.Authorizer
}

func (w *World) authorizer() authorizer.Authorizer {
	if w.Authorizer == nil {
		return authorizerfactory.NewAlwaysAllowAuthorizer()
	}
	return w.Authorizer
}

// authorize answers a review as kube-apiserver does (k8s.io/kubernetes
// pkg/registry/authorization/subjectaccessreview).
func (w *World) authorize(ctx context.Context, review *authorizationv1.SubjectAccessReview) {
	var spec authorization.SubjectAccessReviewSpec
	if err := legacyscheme.Scheme.Convert(&review.Spec, &spec, nil); err != nil {
		panic(err)
	}
	attributes := authorizationutil.AuthorizationAttributesFrom(spec)
	decision, reason, err := w.authorizer().Authorize(ctx, attributes)
	review.Status = authorizationv1.SubjectAccessReviewStatus{
		Allowed: decision == authorizer.DecisionAllow, Denied: decision == authorizer.DecisionDeny, Reason: reason,
		EvaluationError: authorizationutil.BuildEvaluationError(err, attributes),
	}
}

// NewUpstream makes the plugin ready as kube-apiserver does, in a world that ends
// with ctx. Config is its own configuration file, empty for none.
func NewUpstream(ctx context.Context, name, config string, world World) (Implementation, error) {
	plugins := admission.NewPlugins()
	options.RegisterAllAdmissionPlugins(plugins)
	server.RegisterAllAdmissionPlugins(plugins) // those of every API server
	var file io.Reader
	if config != "" {
		file = bytes.NewBufferString(config)
	}
	var objects []runtime.Object
	for _, object := range world.Objects {
		objects = append(objects, object.DeepCopyObject())
	}
	client := fake.NewSimpleClientset(objects...) // NewClientset takes a second, for managed fields
	client.PrependReactor("*", "*", refuse)
	client.PrependReactor("update", "resourcequotas", reformat)
	informers := informers.NewSharedInformerFactory(client, 0)
	quotas, err := install.NewQuotaConfigurationForAdmission(informers, nil)
	if err != nil {
		return nil, err
	}
	plugin, err := plugins.InitPlugin(name, file, admission.PluginInitializers{
		initializer.New(client, nil, informers, world.authorizer(), utilfeature.DefaultFeatureGate,
			compatibility.DefaultBuildEffectiveVersion(), ctx.Done(), restMapper()),
		kubeadmission.NewPluginInitializer(quotas, nil),
	})
	if err != nil {
		return nil, err
	}
	informers.Start(ctx.Done())
	informers.WaitForCacheSync(ctx.Done())
	asked := &upstream{plugin, client}
	if world.hasQuotas() {
		if err := awaitClasses(quotas.Evaluators(), &world); err != nil {
			return nil, err
		}
		return &quotaUpstream{upstream: asked, client: client, lister: informers.Core().V1().ResourceQuotas().Lister()}, nil
	}
	return asked, nil
}

// reformat makes the quantities that a quota says are used what they are once they were written:
// sums have the format of the first addend, and the fake client keeps them in memory.
func reformat(action clienttesting.Action) (handled bool, object runtime.Object, err error) {
	used := action.(clienttesting.UpdateAction).GetObject().(*corev1.ResourceQuota).Status.Used
	for name, quantity := range used {
		used[name] = resource.MustParse(quantity.String())
	}
	return false, nil, nil
}

// Handles returns what says which operations Kubernetes' plugin handles.
func Handles(ctx context.Context, name, config string) (func(admission.Operation) bool, error) {
	made, err := NewUpstream(ctx, name, config, World{})
	if err != nil {
		return nil, err
	}
	return made.(*upstream).plugin.Handles, nil
}

// refuse answers requests that the client of an API server does not send, which
// the fake one does not look at (k8s.io/client-go rest).
func refuse(action clienttesting.Action) (handled bool, object runtime.Object, err error) {
	request := rest.NewRequestWithClient(new(url.URL), "", rest.ClientContentConfig{}, nil).
		NamespaceIfScoped(action.GetNamespace(), action.GetNamespace() != "").Resource(action.GetResource().Resource)
	if get, ok := action.(clienttesting.GetAction); ok {
		request = request.Name(get.GetName())
	}
	return request.Error() != nil, nil, request.Error()
}

func (u *upstream) namespaces() ([]string, error) {
	list, err := u.client.CoreV1().Namespaces().List(context.Background(), metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	names := make([]string, len(list.Items))
	for i := range list.Items {
		names[i] = list.Items[i].Name
	}
	slices.Sort(names)
	return names, nil
}

func (u *upstream) answer(r *request, phase fastadmit.Phase) (Answer, error) {
	attributes, err := r.Case.attributes() // of its own: the plugin writes to the object
	if err != nil {
		return Answer{}, err
	}
	var answer Answer
	var given warnings
	ctx := audit.WithAuditContext(warning.WithWarningRecorder(context.Background(), &given))
	if err := audit.AuditContextFrom(ctx).Init(audit.RequestAuditConfig{Level: auditinternal.LevelMetadata}, nil); err != nil {
		return Answer{}, err
	}
	denial := u.ask(ctx, attributes, phase)
	answer.Warnings = given.response.Warnings()
	for key, value := range audit.AuditContextFrom(ctx).GetEventAnnotations() {
		if key = annotationKey(key); key != "" {
			answer.annotate(key, value)
		}
	}
	if denial != nil {
		answer.Status = responsewriters.ErrorToAPIStatus(denial)
		return answer, nil
	}
	if phase == fastadmit.Validate {
		return answer, nil
	}
	versioned, err := admission.NewVersionedAttributes(attributes, r.asKind(), objectInterfaces())
	if err != nil {
		return Answer{}, err
	}
	answer.Object, err = encode(versioned.VersionedObject)
	return answer, err
}

// annotate notes an annotation of the audit log.
func (a *Answer) annotate(key, value string) {
	if a.Annotations == nil {
		a.Annotations = make(map[string]string)
	}
	a.Annotations[key] = value
}

// warnings implements warning.Recorder. The filter of API servers drops those that are
// there already, cuts long ones, and drops those with control characters
// (k8s.io/apiserver pkg/endpoints/filters/warning.go). For the last, fastadmit sends
// some that can be shown, which is what these are made into.
type warnings struct{ response codec.Response }

func (w *warnings) AddWarning(_, text string) { w.response.Warn(text) }

func (u *upstream) ask(ctx context.Context, attributes admission.Attributes, phase fastadmit.Phase) error {
	if !u.plugin.Handles(attributes.GetOperation()) {
		return nil
	}
	audited := admission.WithAudit(u.plugin) // which does nothing in a phase that the plugin is not for
	if phase == fastadmit.Mutate {
		err := audited.(admission.MutationInterface).Admit(ctx, attributes, objectInterfaces())
		if again := attributes.GetReinvocationContext(); err == nil &&
			again.ShouldReinvoke() { // as a webhook that changed something asks for
			again.SetIsReinvoke()
			err = audited.(admission.MutationInterface).Admit(ctx, attributes, objectInterfaces())
		}
		return err
	}
	return audited.(admission.ValidationInterface).Validate(ctx, attributes, objectInterfaces())
}
