package oracle

import (
	"bytes"
	"context"
	"io"
	"slices"

	authorizationv1 "k8s.io/api/authorization/v1"
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
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/authorization"
	kubeadmission "k8s.io/kubernetes/pkg/controlplane/apiserver/admission"
	"k8s.io/kubernetes/pkg/kubeapiserver/admission/exclusion"
	"k8s.io/kubernetes/pkg/kubeapiserver/options"
	"k8s.io/kubernetes/pkg/quota/v1/install"
	authorizationutil "k8s.io/kubernetes/pkg/registry/authorization/util"

	fastadmit "github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/e2e/released"
)

// upstream is a plugin of kube-apiserver, linked into this process.
type upstream struct {
	plugin admission.Interface
	client kubernetes.Interface
}

// A World is the cluster in which both implementations answer.
type World struct {
	// Objects are the objects of the cluster, of kinds that fastadmit knows, with defaults. Each
	// implementation has its own copies and may write to them.
	Objects []runtime.Object
	// Authorizer decides about permissions; nil if all users have all permissions. If it is set,
	// plugins of fastadmit that watch nothing ask a stand-in for an API server, which has none of
	// the Objects.
	Authorizer authorizer.UnconditionalAuthorizer
	// Version is the release of Kubernetes that fastadmit emulates.
	Version fastadmit.Version
}

func (w *World) authorizer() authorizer.UnconditionalAuthorizer {
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

// NewUpstream starts the plugin as kube-apiserver does, in a world that ends with ctx. config is the
// configuration file of the plugin, empty for none.
func NewUpstream(ctx context.Context, name, config string, world World) (Implementation, error) {
	plugins := admission.NewPlugins()
	options.RegisterAllAdmissionPlugins(plugins)
	server.RegisterAllAdmissionPlugins(plugins) // the plugins of k8s.io/apiserver
	var file io.Reader
	if config != "" {
		file = bytes.NewBufferString(config)
	}
	var objects []runtime.Object
	for _, object := range world.Objects {
		objects = append(objects, object.DeepCopyObject())
	}
	client := fake.NewSimpleClientset(objects...) // NewClientset takes a second, because it tracks managed fields
	client.PrependReactor("*", "*", released.Refuse)
	client.PrependReactor("update", "resourcequotas", released.Reformat)
	informers := informers.NewSharedInformerFactory(client, 0)
	quotas, err := install.NewQuotaConfigurationForAdmission(informers, nil)
	if err != nil {
		return nil, err
	}
	plugin, err := plugins.InitPlugin(name, file, admission.PluginInitializers{
		initializer.New(client, nil, informers, authorizer.AuthorizerFunc(world.authorizer().Authorize), utilfeature.DefaultFeatureGate,
			compatibility.DefaultBuildEffectiveVersion(), ctx.Done(), released.RESTMapper()),
		kubeadmission.NewPluginInitializer(quotas, exclusion.Excluded()),
	})
	if err != nil {
		return nil, err
	}
	informers.Start(ctx.Done())
	informers.WaitForCacheSync(ctx.Done())
	asked := &upstream{plugin, client}
	if world.hasQuotas() {
		if err := released.AwaitClasses(quotas.Evaluators(), objects); err != nil {
			return nil, err
		}
		return &quotaUpstream{upstream: asked, client: client, lister: informers.Core().V1().ResourceQuotas().Lister()}, nil
	}
	return asked, nil
}

// Handles returns the function Handles of Kubernetes' plugin.
func Handles(ctx context.Context, name, config string) (func(admission.Operation) bool, error) {
	made, err := NewUpstream(ctx, name, config, World{})
	if err != nil {
		return nil, err
	}
	return made.(*upstream).plugin.Handles, nil
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
	attributes, err := r.Case.attributes() // a copy, because the plugin writes to the object
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
	answer.Object, err = encode(versioned.VersionedObject.Object())
	return answer, err
}

// annotate adds an audit annotation.
func (a *Answer) annotate(key, value string) {
	if a.Annotations == nil {
		a.Annotations = make(map[string]string)
	}
	a.Annotations[key] = value
}

// warnings implements warning.Recorder. The filter of API servers drops duplicate warnings and those with
// control characters, and cuts long ones (k8s.io/apiserver pkg/endpoints/filters/warning.go). fastadmit
// replaces control characters instead. So that both sides are equal, codec.Response treats the warnings of
// Kubernetes as those of fastadmit.
type warnings struct{ response codec.Response }

func (w *warnings) AddWarning(_, text string) { w.response.Warn(text) }

func (u *upstream) ask(ctx context.Context, attributes admission.Attributes, phase fastadmit.Phase) error {
	if !u.plugin.Handles(attributes.GetOperation()) {
		return nil
	}
	audited := admission.WithAudit(u.plugin) // does nothing in a phase that the plugin does not have
	if phase == fastadmit.Mutate {
		err := audited.(admission.MutationInterface).Admit(ctx, attributes, objectInterfaces())
		if again := attributes.GetReinvocationContext(); err == nil &&
			again.ShouldReinvoke() { // a webhook has changed the object
			again.SetIsReinvoke()
			err = audited.(admission.MutationInterface).Admit(ctx, attributes, objectInterfaces())
		}
		return err
	}
	return audited.(admission.ValidationInterface).Validate(ctx, attributes, objectInterfaces())
}
