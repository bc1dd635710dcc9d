package service

import (
	"context"
	"errors"
	"time"

	"salvor/compute"
	"salvor/job"
)

// ask asks the destinations of a draft what they see of the servers that are to go there and takes the answers into the input of the plan.
// Nobody who is asked and does not answer in time has seen anything. Servers without a question need none.
func (s *Plans) ask(ctx context.Context, o *compute.PlanInput, items []compute.PlanItem) error {
	orders, err := o.ProbeOrders(items)
	if err != nil || len(orders) == 0 {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, compute.ProbeTimeout)
	defer cancel()
	if err := s.jobs.Do(ctx, func(tx job.Tx) error {
		for i := range orders {
			if _, err := s.store.InsertOrder(tx, &orders[i].Order); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return err
	}
	err = s.awaitSights(ctx, o, orders)
	ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), compute.ProbeTimeout)
	defer cancel()
	dropped := s.jobs.Do(ctx, func(tx job.Tx) error {
		for i := range orders {
			if err := s.store.DropOrder(tx, orders[i].Order.ID); err != nil {
				return err
			}
		}
		return nil
	})
	return errors.Join(err, dropped)
}

func (s *Plans) awaitSights(ctx context.Context, o *compute.PlanInput, open []*compute.ProbeOrder) error {
	tick := time.NewTicker(compute.ProbePollInterval)
	defer tick.Stop()
	for len(open) > 0 {
		select {
		case <-ctx.Done():
			for _, a := range open {
				o.ApplySights(a, nil)
			}
			return nil
		case <-tick.C:
		}
		var left []*compute.ProbeOrder
		for _, a := range open {
			now, err := s.store.Order(ctx, nil, a.Order.ID)
			switch {
			case err != nil && ctx.Err() == nil:
				return err
			case err != nil || now.Result == nil:
				left = append(left, a)
			default:
				o.ApplySights(a, now.Result)
			}
		}
		open = left
	}
	return nil
}
