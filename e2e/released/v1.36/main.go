// The command v1.36 answers AdmissionReviews as the admission plugins of Kubernetes v1.36 do. Package released says
// what it reads and writes.
package main

import (
	"context"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/util/compatibility"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/pkg/quota/v1/install"
	"k8s.io/kubernetes/plugin/pkg/admission/defaulttolerationseconds"

	"github.com/fastadmit/fastadmit/e2e/released"
	"github.com/fastadmit/fastadmit/e2e/released/published"
)

func main() {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	defaulttolerationseconds.RegisterFlags(flags)
	released.Run(released.Release{
		Initializer: func(c kubernetes.Interface, d dynamic.Interface, i informers.SharedInformerFactory, a authorizer.Authorizer,
			ends <-chan struct{}, m meta.RESTMapper,
		) admission.PluginInitializer {
			return initializer.New(c, d, i, a, utilfeature.DefaultFeatureGate, compatibility.DefaultBuildEffectiveVersion(), ends, m)
		},
		Client: published.Client,
		Quotas: func(i informers.SharedInformerFactory) (quota.Configuration, error) {
			return install.NewQuotaConfigurationForAdmission(i, nil)
		},
		ReadsClasses: true,
		Flags:        flags,
		Audit: func(ctx context.Context) (context.Context, func() map[string]string) {
			ctx = audit.WithAuditContext(ctx)
			event := audit.AuditContextFrom(ctx)
			if err := event.Init(audit.RequestAuditConfig{Level: auditinternal.LevelMetadata}, nil); err != nil {
				panic(err)
			}
			return ctx, event.GetEventAnnotations
		},
	})
}
