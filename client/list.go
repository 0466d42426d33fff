package client

import (
	"context"
	"iter"
	"net/url"
	"strconv"

	"github.com/shelld/shelld/rpc"
)

// maxPage is the largest page that the daemon serves. Source: rpc/openapi.yaml.
const maxPage = 100

// Page selects a page of a list. The zero value is the first page of the
// daemon's usual size, newest first.
type Page struct {
	// Limit is the size of the page, 1 to 100. Zero: the daemon's default.
	Limit int
	// Order is "asc" or "desc", by time of creation. Empty: "desc".
	Order string
	// After is the id of the last object of the page before. Empty: the first
	// page.
	After string
}

func (p Page) values() url.Values {
	q := url.Values{}
	if p.Limit != 0 {
		q.Set("limit", strconv.Itoa(p.Limit))
	}
	set(q, "order", p.Order)
	set(q, "after", p.After)
	return q
}

func set(q url.Values, name, value string) {
	if value != "" {
		q.Set(name, value)
	}
}

// all yields the objects of page after page, beginning after from. It ends
// after the first error, which it yields with a zero object.
func all[T any](ctx context.Context, from Page, page func(context.Context, Page) (*rpc.List[T], error)) iter.Seq2[T, error] {
	if from.Limit == 0 {
		from.Limit = maxPage
	}
	return func(yield func(T, error) bool) {
		for {
			list, err := page(ctx, from)
			if err != nil {
				var zero T
				yield(zero, err)
				return
			}
			for _, object := range list.Data {
				if !yield(object, nil) {
					return
				}
			}
			if !list.HasMore || list.LastID == "" {
				return
			}
			from.After = list.LastID
		}
	}
}
