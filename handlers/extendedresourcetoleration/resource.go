package extendedresourcetoleration

import "strings"

// A resource quota names an extended resource with quotaPrefix in front. The result must be
// a qualified name.
const (
	quotaPrefix    = "requests."
	domainBytesMax = 253 - len(quotaPrefix) // a DNS subdomain (RFC 1123)
	nameBytesMax   = 63
)

// isExtended reports whether a resource is extended: not defined by Kubernetes, and usable
// in a quota (k8s.io/kubernetes pkg/apis/core/helper IsExtendedResourceName). The check for
// a qualified name in k8s.io/apimachinery would allocate.
func isExtended(resource string) bool {
	domain, name, _ := strings.Cut(resource, "/")
	return !strings.Contains(resource, "kubernetes.io/") && !strings.HasPrefix(resource, quotaPrefix) &&
		isSubdomain(domain) && isName(name)
}

// isSubdomain reports whether s consists of labels of lower-case letters, digits and dashes,
// separated by dots, without dashes at the ends of a label.
func isSubdomain(s string) bool {
	last := byte('.')
	for i := range len(s) {
		c := s[i]
		switch {
		case isLower(c) || isDigit(c):
		case c == '-' && last != '.':
		case c == '.' && last != '.' && last != '-':
		default:
			return false
		}
		last = c
	}
	return last != '.' && last != '-' && len(s) <= domainBytesMax
}

// isName reports whether s consists of letters, digits, dashes, underscores and dots, with a
// letter or digit at both ends.
func isName(s string) bool {
	if s == "" || len(s) > nameBytesMax || !isAlphanumeric(s[0]) || !isAlphanumeric(s[len(s)-1]) {
		return false
	}
	for i := range len(s) {
		if c := s[i]; !isAlphanumeric(c) && c != '-' && c != '_' && c != '.' {
			return false
		}
	}
	return true
}

func isLower(c byte) bool { return 'a' <= c && c <= 'z' }

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isAlphanumeric(c byte) bool { return isLower(c) || isDigit(c) || 'A' <= c && c <= 'Z' }
